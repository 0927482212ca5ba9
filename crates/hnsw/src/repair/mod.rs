//! Repairs what neighbor selection alone cannot ensure: links among elements of equal values ([`duplicates`]), reachability of every element
//! ([`reach`]), and searches that do not get lost ([`guard`] measures them, [`across`] links groups of elements to each
//! other, [`navigate`] links elements to those on the way to them).
//!
//! In: a draft with full lists. Out: the repaired draft, and the measures. Measuring costs some hundred searches. If needed, links across cost each
//! element some hundred comparisons, and navigation a search for every element, or in large tables for every second or fourth.

pub(crate) mod across;
pub(crate) mod duplicates;
pub(crate) mod guard;
pub(crate) mod navigate;
pub(crate) mod reach;
