//! The bulk engine: no element is inserted, all are placed at once.
//!
//! Points are split into overlapping groups of neighbors by their nearest of a few random leaders, until a group is small enough
//! to look at all its pairs ([`carve`]). There distances cost least: blocks of vectors are multiplied while they are in the cache
//! ([`leaf`]). Each point keeps its nearest of every leaf, looks at what the points beside it
//! keep ([`refine`]), and chooses its neighbors from all of them at
//! the end. Upper layers are made the same way from fewer points.
//!
//! The recipe is that of PiPNN (arXiv 2602.21247): overlapping partitions, all pairs, one pruning.

mod carve;
mod engine;
mod hubs;
mod leaders;
mod leaf;
mod plan;
mod random;
mod refine;
#[cfg(test)]
mod tests;

pub(crate) use engine::{BulkEngine, draw_levels};
pub(crate) use random::Random;
