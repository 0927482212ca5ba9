//! How hard to look for neighbors: what `ef_construction` and `m` ask for, in the terms of this engine.

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
    /// The fewest neighbors taken from a leaf.
    least: usize,
    /// The nearest candidates that are kept for each point.
    pub(crate) keep: usize,
}

/// With the element itself and the nearest leaders, candidates fill whole tiles.
const BESIDES: usize = 8;

/// How points of a group are compared.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Compared {
    /// By products of codes; and a second time, with the candidates of those beside them.
    ByCodes,
    ByProducts,
    /// One by one, which costs the most: fewer are looked at.
    Singly,
}

impl Plan {
    /// For lists of `list` slots.
    pub(crate) fn new(ef_construction: u16, list: usize, compared: Compared) -> Self {
        use Compared::{ByCodes, ByProducts, Singly};
        let (fans, wanted) = match (ef_construction, compared) {
            // Whatever ef_construction: fewer leaves are hardly faster, more find hardly anything else.
            (_, ByCodes) => ([12, 2], 72),
            (0..=64, ByProducts) => ([8, 3], 64),
            (65..=128, ByProducts) => ([10, 3], 96),
            (_, ByProducts) => ([12, 4], 128),
            (0..=64, Singly) => ([4, 2], 64),
            (65..=128, Singly) => ([6, 2], 96),
            (_, Singly) => ([8, 3], 128),
        };
        let (leaf_max, leaf_aim, max_leaders, least) = match compared {
            ByCodes => (1024, 500, 4000, 6),
            ByProducts => (1536, 800, 1000, 8),
            Singly => (384, 200, 250, 8),
        };
        Self { fans, leaf_max, leaf_aim, max_leaders, wanted, least, keep: (2 * list).max(64) - BESIDES }
    }

    /// How many of the nearest leaders of a point are candidates, too.
    pub(crate) fn far(&self) -> usize {
        self.fans[0].min(BESIDES - 1)
    }

    /// To how many leaders a point goes at a depth.
    pub(crate) fn fan(&self, depth: usize) -> usize {
        self.fans.get(depth).copied().unwrap_or(1)
    }

    /// Neighbors taken for each point of a leaf at a depth.
    pub(crate) fn per_leaf(&self, depth: usize) -> usize {
        let leaves: usize = (0..depth).map(|depth| self.fan(depth)).product();
        self.wanted.div_ceil(leaves).max(self.least)
    }

    /// Groups smaller than this are put together.
    pub(crate) fn leaf_min(&self) -> usize {
        self.leaf_aim / 6
    }
}
