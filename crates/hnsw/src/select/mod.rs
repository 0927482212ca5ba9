//! Neighbor selection: which of its candidates each element links to.
//!
//! The diversity rule chooses from what the partition found ([`complete`]); each element then considers those that chose it ([`mutual`]).
//! pgvector keeps layer-0 lists full, so the rule is followed by a refill.
//!
//! In: [`Gathered`] candidates of a layer. Out: full lists in the [`Draft`](crate::draft::Draft). Two rounds and the placing of lists in parallel.

mod complete;
mod mutual;
mod round;
mod rule;

pub(crate) use complete::{Far, Gathered, fill};
pub(crate) use mutual::choose_again;
pub(crate) use round::{Choosing, Turn};
pub(crate) use rule::{Rule, Selector};
