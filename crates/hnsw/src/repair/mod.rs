//! What lists alone do not give: links among elements of equal values ([`duplicates`]), a way to every element ([`reach`]), and searches that do
//! not lose their way: [`guard`] measures them, [`navigate`] links elements to what lies on the way to them.
//!
//! In: a draft with full lists. Out: the same draft, mended, and what was measured. The measure costs some hundred searches; navigation, where it is
//! needed, one search for each element.

pub(crate) mod duplicates;
pub(crate) mod guard;
pub(crate) mod navigate;
pub(crate) mod reach;
