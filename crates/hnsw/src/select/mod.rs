//! Neighbor selection: which of its candidates each element links to.
//!
//! The diversity rule chooses from what the partition found ([`complete`]); each element then selects again, also among the elements that
//! chose it (the reverse-edge pass, [`reverse_edges`]); elements that few others link to get links from their own neighbors
//! ([`in_degree`]). Elements of a group of near-identical ones get links out of it ([`outward`]). pgvector keeps layer-0 lists full, so the
//! rule is followed by a refill.
//!
//! In: [`Gathered`] candidates of a layer. Out: full lists in the [`Draft`](crate::draft::Draft). Both selections are parallel; giving
//! links to elements of low in-degree is serial.

mod complete;
mod in_degree;
mod outward;
mod reverse_edges;
mod round;
mod rule;

pub(crate) use complete::{Gathered, NearestPivots, fill};
pub(crate) use in_degree::balance_in_degrees;
pub(crate) use outward::link_out;
pub(crate) use reverse_edges::choose_again;
pub(crate) use round::{Choosing, Turn};
#[cfg(test)]
pub(crate) use rule::MOST_COMPARED;
pub(crate) use rule::{Rule, Selector};
