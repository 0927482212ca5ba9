//! Repairs what neighbor selection alone cannot ensure: links among elements of equal values ([`duplicates`]), reachability of every element
//! ([`reach`]), and searches that do not get lost ([`missed`] links elements that searches miss, [`guard`] measures the graph, [`across`] links groups
//! of elements to each other, [`navigate`] links elements to those on the way to them).
//!
//! In: a draft with full lists. Out: the repaired draft, and the measures. Missed elements cost a search for one element of sixteen, or of
//! four where many are missed; measuring costs some hundred searches. If needed, links across cost each
//! element some hundred comparisons, and navigation a search for every element, or in large tables for every second or fourth.

pub(crate) mod across;
pub(crate) mod duplicates;
pub(crate) mod guard;
pub(crate) mod missed;
pub(crate) mod navigate;
pub(crate) mod reach;
