//! Finds candidates, elements that are near each other, without searching a graph.
//!
//! Points are split into overlapping groups by the nearest of some random pivots ([`split`]), until a group is small enough to compare all
//! its pairs ([`leaf`]): there distances cost least, since blocks of vectors are multiplied while they are in the cache. Each point keeps
//! the nearest elements of every leaf, then considers the candidates of nearby points ([`refine`]). If a sample shows that too many
//! neighbors are missing, the partition is repeated with other pivots ([`more`]). The algorithm is that of PiPNN (arXiv 2602.21247).
//!
//! In: the points of a layer and a space. Out: [`Candidates`](crate::candidates::Candidates). Cost: each point is compared with the pivots
//! and with the points of its leaves.

mod grouped;
mod leaf;
pub(crate) mod longest;
mod more;
mod pivots;
pub(crate) mod plan;
mod refine;
mod split;

pub(crate) use leaf::Leaf;
pub(crate) use more::{Sample, partition_more};
pub(crate) use split::Partition;
