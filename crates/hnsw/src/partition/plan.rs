//! The parameters of a build, derived from `ef_construction`, `m` and the number of points.

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The number of nearest pivots that a point goes to, at the first and the second split; at later splits it is one.
    pub(crate) fans: [usize; 2],
    /// The most points of a leaf, all pairs of which are compared.
    pub(crate) leaf_max: usize,
    /// Target size of a part of the first split, in points.
    first_aim: usize,
    /// Target size of a leaf, in points.
    pub(crate) leaf_aim: usize,
    /// The most pivots of a split: every point is compared with all of them.
    max_pivots: usize,
    /// Candidates taken for a point from all its leaves together.
    pub(crate) wanted: usize,
    /// Candidates taken for a point from one leaf, at least.
    least: usize,
    /// Candidates kept for each point, its nearest.
    pub(crate) keep: usize,
    /// Whether candidates are refined (`refine`): not with the smallest `ef_construction`.
    pub(crate) refines: bool,
    /// The most partitions that are added while candidates lack too many neighbors (`more`): none with a small `ef_construction`.
    pub(crate) more: u64,
    #[cfg(test)]
    pub(crate) defect: Defect,
}

/// Places reserved for the element itself and its nearest pivots: `keep` is less by this, so that together with the candidates they fill
/// whole tiles.
const BESIDES: usize = 8;

/// How the points of a group are compared.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Compared {
    /// By tiles of int8 codes, then refined with the candidates of the cell.
    ByCodes,
    /// By tiles of codes of principal components, refined in the same way; more candidates are kept.
    ByComponents,
    /// By tiles of f32.
    ByTiles,
    /// By tiles of bits.
    ByBits,
    /// Sparse vectors, by the dimensions that they share.
    Inverted,
}

/// A deliberate defect, to test that the guard notices it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Defect {
    #[default]
    None,
    /// One leaf of ten is left out.
    LeavesDropped,
    /// All points with one nearest pivot are in no group and in no list.
    GroupLost,
    /// Codes have half of their bits.
    CodesHalved,
}

impl Plan {
    /// The plan for `points` points whose lists have `list` slots.
    pub(crate) fn new(ef_construction: u16, list: usize, compared: Compared, points: usize) -> Self {
        use Compared::{ByBits, ByCodes, ByComponents, ByTiles, Inverted};
        let (leaf_max, leaf_aim, max_pivots, least) = match compared {
            ByCodes | ByComponents => (2500, 800, 4000, 6),
            ByTiles => (1536, 800, 1000, 8),
            ByBits | Inverted => (1000, 500, 400, 8),
        };
        let (fans, wanted) = match (ef_construction, compared) {
            (0..=16, ByCodes | ByComponents) => ([4, 1], 24),
            (17..=32, ByCodes | ByComponents) => ([8, 1], 48),
            (33..=64, ByCodes) => ([12, 1], 72),
            (_, ByCodes) => ([16, 1], 96),
            // Independent of `ef_construction`: more leaves add hardly any candidates.
            (_, ByComponents) => ([12, 1], 72),
            (0..=16, ByTiles) => ([4, 2], 24),
            (17..=32, ByTiles) => ([6, 2], 48),
            (33..=64, ByTiles) => ([8, 3], 64),
            (65..=128, ByTiles) => ([10, 3], 96),
            (_, ByTiles) => ([12, 4], 128),
            (0..=64, ByBits) => ([8, 2], 64),
            (65..=128, ByBits) => ([10, 2], 96),
            (_, ByBits) => ([12, 3], 128),
            (0..=64, Inverted) => ([6, 2], 64),
            (65..=128, Inverted) => ([8, 2], 96),
            (_, Inverted) => ([10, 3], 128),
        };
        // With more than `max_pivots` pivots, a point would be compared with more pivots than points of its leaves: then two splits replace
        // one.
        let twice = matches!(compared, ByCodes | ByComponents) && points * fans[0] > max_pivots * leaf_aim;
        let (fans, first_aim) = if twice { ([fans[0] / 2, 2], 4 * leaf_aim) } else { (fans, leaf_aim) };
        let more = if compared == ByComponents { 16 } else { 0 };
        let keep = (2 * list).max(wanted.min(64)) + more - BESIDES;
        Self {
            fans,
            leaf_max,
            first_aim,
            leaf_aim,
            max_pivots,
            wanted,
            least,
            keep,
            refines: ef_construction > 16,
            more: if ef_construction <= 32 { 0 } else { 2 },
            #[cfg(test)]
            defect: Defect::None,
        }
    }

    #[cfg(test)]
    pub(crate) fn with(self, defect: Defect) -> Self {
        Self { defect, ..self }
    }

    /// The number of a point's nearest pivots that become candidates.
    pub(crate) fn pivot_links(&self) -> usize {
        self.fans[0].min(BESIDES - 1)
    }

    /// The number of pivots that a point goes to at a depth.
    pub(crate) fn fan(&self, depth: usize) -> usize {
        self.fans.get(depth).copied().unwrap_or(1)
    }

    /// The number of pivots for a group of `points` points.
    pub(crate) fn pivots(&self, points: usize, depth: usize) -> usize {
        let (fan, aim) = (self.fan(depth), if depth == 0 { self.first_aim } else { self.leaf_aim });
        (points * fan).div_ceil(aim).clamp(fan + 2, self.max_pivots)
    }

    /// Candidates taken for each point of a leaf at a depth.
    pub(crate) fn per_leaf(&self, depth: usize) -> usize {
        let leaves: usize = (0..depth).map(|depth| self.fan(depth)).product();
        self.wanted.div_ceil(leaves).max(self.least)
    }

    /// Groups of fewer points are joined.
    pub(crate) fn leaf_min(&self) -> usize {
        self.leaf_aim / 6
    }
}

#[cfg(test)]
mod tests {
    use super::{Compared, Plan};
    use crate::partition::refine;

    /// Pivots and points of its leaves that a point is compared with, if all parts of a split are equal.
    fn comparisons(ef_construction: u16, points: usize) -> usize {
        let plan = Plan::new(ef_construction, 32, Compared::ByCodes, points);
        let (mut of_each, mut depth, mut groups, mut size) = (0, 0, 1, points);
        while size > plan.leaf_max {
            let pivots = plan.pivots(size, depth);
            of_each += groups * pivots;
            groups *= plan.fan(depth);
            size = size * plan.fan(depth) / pivots;
            depth += 1;
        }
        of_each + groups * size / 2
    }

    #[test]
    fn plans_are_within_the_memory_estimate() {
        use Compared::{ByBits, ByCodes, ByComponents, ByTiles, Inverted};
        let most = |list: u16| pages::sizes::kept(list.into());
        for list in [4, 8, 32, 64, 200] {
            for compared in [ByCodes, ByComponents, ByTiles, Inverted, ByBits] {
                for ef_construction in [4, 16, 17, 32, 33, 64, 65, 128, 400] {
                    let plan = Plan::new(ef_construction, list.into(), compared, 100_000);
                    let by_components = if compared == ByComponents { 16 } else { 0 };
                    assert!(plan.keep as u64 <= most(list) + by_components, "{list} {ef_construction}");
                    assert!(ef_construction < 64 || plan.keep as u64 == most(list) + by_components, "{list}");
                }
            }
        }
        let leaf = |compared| Plan::new(64, 32, compared, 100_000).leaf_max as u64;
        let besides = (refine::CELL + refine::PACKED).max(crate::exact::AT_ONCE) as u64;
        let padded = |compared| leaf(compared).next_multiple_of(2 * distance::BLOCK as u64);
        for packed in [ByCodes, ByComponents] {
            assert!(padded(packed) + besides <= pages::sizes::PACKED_CODES);
        }
        let besides = (crate::exact::AT_ONCE + crate::select::MOST_COMPARED) as u64;
        assert!(padded(ByBits) + besides <= pages::sizes::PACKED_BITS);
        assert_eq!((leaf(ByTiles), leaf(Inverted)), (pages::sizes::PACKED, pages::sizes::INVERTED));
        assert_eq!(crate::space::FILLED as u64, pages::sizes::FILLED);
    }

    #[test]
    fn a_small_ef_construction_saves_comparisons() {
        let of = |ef_construction| comparisons(ef_construction, 100_000);
        assert!(of(16) * 5 <= of(64) * 2, "{} {}", of(16), of(64));
        assert!(of(32) < of(64) && of(64) < of(128));
        let refines = |ef_construction| Plan::new(ef_construction, 32, Compared::ByCodes, 100_000).refines;
        assert!(!refines(16) && refines(17));
        let keep = |ef_construction, list| Plan::new(ef_construction, list, Compared::ByCodes, 100_000).keep;
        assert!(keep(16, 4) < keep(64, 4) && keep(16, 32) == keep(64, 32));
    }

    #[test]
    fn comparisons_per_point_grow_slowly_with_the_table() {
        for ef_construction in [64, 128] {
            let comparisons = |points| comparisons(ef_construction, points);
            let few = comparisons(25_000);
            for points in [50_000, 100_000, 200_000, 200_001, 266_666, 266_667, 400_000, 1_000_000] {
                let many = comparisons(points);
                assert!(many * 2 <= few * 5, "{few}, of {points} {many}");
            }
            assert!(comparisons(400_000) * 5 <= few * 8, "{few}, {}", comparisons(400_000));
            assert!(comparisons(10_000_000) <= 4 * few);
        }
    }
}
