//! How hard to look for neighbors: what `ef_construction` and `m` ask for, in the terms of this engine.

/// The parameters of one build.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// To how many of the nearest leaders a point goes, at the first split, the second, …; to one after the last.
    pub(crate) fans: Vec<usize>,
    /// Neighbors wanted from all leaves of a point together.
    pub(crate) wanted: usize,
    /// The nearest candidates that are kept for each point.
    pub(crate) keep: usize,
}

/// Points of a leaf at most: all pairs of a leaf are looked at.
pub(crate) const LEAF_MAX: usize = 1536;
/// Points of a leaf that splits aim at.
pub(crate) const LEAF_AIM: usize = 800;
/// Leaders of a split at most.
pub(crate) const MAX_LEADERS: usize = 1000;
/// Groups smaller than this are put together.
pub(crate) const LEAF_MIN: usize = 128;
/// The fewest neighbors taken from a leaf.
const LEAST_PER_LEAF: usize = 8;

impl Plan {
    pub(crate) fn new(ef_construction: u16, list: usize) -> Self {
        let (fans, wanted) = match ef_construction {
            0..=64 => (vec![8, 3], 64),
            65..=128 => (vec![10, 3], 96),
            _ => (vec![12, 4], 128),
        };
        Self { fans, wanted, keep: (4 * list).clamp(64, 320).max(list + list / 2) }
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
}
