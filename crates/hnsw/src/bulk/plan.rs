//! How hard to look for neighbors: what `ef_construction` and `m` ask for, in the terms of this engine.

use crate::select;

/// The parameters of one build.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// To how many of the nearest leaders a point goes, at the first split, the second, …; to one after the last.
    pub(crate) fans: [usize; 2],
    /// Points of a leaf at most: all pairs of a leaf are looked at.
    pub(crate) leaf_max: usize,
    /// Points of a leaf that splits aim at.
    pub(crate) leaf_aim: usize,
    /// Leaders of a split at most: every point is compared with all of them.
    pub(crate) max_leaders: usize,
    /// Neighbors wanted from all leaves of a point together.
    pub(crate) wanted: usize,
    /// The nearest candidates that are kept for each point.
    pub(crate) keep: usize,
    /// As in [`select::Rule`].
    pub(crate) slacks: [f32; 2],
}

/// The fewest neighbors taken from a leaf.
const LEAST_PER_LEAF: usize = 8;

impl Plan {
    /// For lists of `list` slots. `by_products`: whether distances cost as little as products of blocks do, else they are
    /// measured one by one and fewer are looked at.
    pub(crate) fn new(ef_construction: u16, list: usize, by_products: bool) -> Self {
        let (fans, wanted) = match (ef_construction, by_products) {
            (0..=64, true) => ([8, 3], 64),
            (65..=128, true) => ([10, 3], 96),
            (_, true) => ([12, 4], 128),
            (0..=64, false) => ([4, 2], 64),
            (65..=128, false) => ([6, 2], 96),
            (_, false) => ([8, 3], 128),
        };
        let slacks = if ef_construction <= 64 { select::SLACKS } else { select::SLACKS_OF_MANY };
        let (leaf_max, leaf_aim, max_leaders) = if by_products { (1536, 800, 1000) } else { (384, 200, 250) };
        Self { fans, leaf_max, leaf_aim, max_leaders, wanted, keep: (2 * list).max(64), slacks }
    }

    /// To how many leaders a point goes at a depth.
    pub(crate) fn fan(&self, depth: usize) -> usize {
        self.fans.get(depth).copied().unwrap_or(1)
    }

    /// Neighbors taken for each point of a leaf at a depth.
    pub(crate) fn per_leaf(&self, depth: usize) -> usize {
        let leaves: usize = (0..depth).map(|depth| self.fan(depth)).product();
        self.wanted.div_ceil(leaves).max(LEAST_PER_LEAF)
    }

    /// Groups smaller than this are put together.
    pub(crate) fn leaf_min(&self) -> usize {
        self.leaf_aim / 6
    }
}
