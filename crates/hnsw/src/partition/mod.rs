//! Finds candidates, elements that are near each other, without searching a graph.
//!
//! Points are split into overlapping groups by their nearest of a few random pivots ([`split`]), until a group is small enough to
//! compare all its pairs ([`leaf`]): there distances cost least, since blocks of vectors are multiplied while they are in the
//! cache. Each point keeps the nearest elements of every leaf, then considers the candidates of nearby points ([`refine`]). The
//! algorithm is that of PiPNN (arXiv 2602.21247).
//!
//! In: the points of a layer and a space. Out: [`Candidates`](crate::candidates::Candidates). A row costs its comparisons with the pivots
//! and with the points of its leaves.

mod grouped;
mod leaf;
pub(crate) mod longest;
mod pivots;
pub(crate) mod plan;
mod refine;
mod split;

pub(crate) use leaf::Leaf;
pub(crate) use split::Partition;
