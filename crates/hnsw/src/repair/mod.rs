//! Repairs what neighbor selection alone cannot ensure: links among elements of equal values ([`duplicates`]), reachability of every
//! element ([`reach`]), and searches that do not get lost: [`guard`] measures the loss; if it is large, [`across`] links groups of elements
//! to each other, or [`navigate`] links elements to those on the search path; [`missed`] links elements that searches still miss, where
//! links across do not find more.
//!
//! In: a draft with full lists. Out: the repaired draft, and the measures. Measuring costs some hundred searches, and missed elements a
//! search for a sixteenth of the elements, at most 2,048, or for up to a fourth if many are missed. If needed, links across cost each element
//! some hundred comparisons, and navigation a search for every element, or in large tables for at most 100,000.

pub(crate) mod across;
pub(crate) mod duplicates;
pub(crate) mod guard;
pub(crate) mod missed;
pub(crate) mod navigate;
pub(crate) mod reach;
