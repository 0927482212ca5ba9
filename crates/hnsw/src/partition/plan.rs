//! How hard to look for neighbors: what `ef_construction` and `m` ask for, in the terms of this engine.

/// The parameters of one build.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// To how many of the nearest pivots a point goes, at the first split, the second, …; to one after the last.
    pub(crate) fans: [usize; 2],
    /// Points of a leaf at most: all pairs of a leaf are compared.
    pub(crate) leaf_max: usize,
    /// Points of a part that the first split aims at.
    first_aim: usize,
    /// Points of a leaf that further splits aim at.
    pub(crate) leaf_aim: usize,
    /// Pivots of a split at most: every point is compared with all of them.
    max_pivots: usize,
    /// Neighbors wanted from all leaves of a point together.
    pub(crate) wanted: usize,
    /// The fewest neighbors taken from a leaf.
    least: usize,
    /// The nearest candidates that are kept for each point.
    pub(crate) keep: usize,
    #[cfg(test)]
    pub(crate) defect: Defect,
}

/// With the element itself and the nearest pivots, candidates fill whole tiles.
const BESIDES: usize = 8;

/// How points of a group are compared.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Compared {
    /// By products of codes; and again with the candidates of their cell.
    ByCodes,
    /// The same by codes of principal components, which cost so little that more pairs are compared.
    ByComponents,
    ByProducts,
    /// One by one: bits, and sums of differences.
    Singly,
    /// One by one, sparse vectors, whose distances cost by far the most: fewer pairs are compared.
    SinglySparse,
}

/// What is put in on purpose, to see whether the guard notices.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Defect {
    #[default]
    None,
    /// One leaf of ten is left out.
    LeavesDropped,
    /// Points with the same nearest pivot are in no group and in no list.
    GroupLost,
    /// Codes have half of their bits.
    CodesHalved,
}

impl Plan {
    /// For lists of `list` slots, of `points` points.
    pub(crate) fn new(ef_construction: u16, list: usize, compared: Compared, points: usize) -> Self {
        use Compared::{ByCodes, ByComponents, ByProducts, Singly, SinglySparse};
        let (leaf_max, leaf_aim, max_pivots, least) = match compared {
            ByCodes | ByComponents => (2500, 800, 4000, 6),
            ByProducts => (1536, 800, 1000, 8),
            Singly => (1000, 500, 400, 8),
            SinglySparse => (384, 200, 250, 8),
        };
        let (fans, wanted) = match (ef_construction, compared) {
            (0..=64, ByCodes) => ([12, 1], 72),
            (_, ByCodes) => ([16, 1], 96),
            // Whatever ef_construction: more leaves find hardly anything else.
            (_, ByComponents) => ([12, 1], 72),
            (0..=64, ByProducts) => ([8, 3], 64),
            (65..=128, ByProducts) => ([10, 3], 96),
            (_, ByProducts) => ([12, 4], 128),
            (0..=64, Singly) => ([8, 2], 64),
            (65..=128, Singly) => ([10, 2], 96),
            (_, Singly) => ([12, 3], 128),
            (0..=64, SinglySparse) => ([4, 2], 64),
            (65..=128, SinglySparse) => ([6, 2], 96),
            (_, SinglySparse) => ([8, 3], 128),
        };
        // With more pivots each point would be compared with as many of them as with others of its leaves.
        let twice = matches!(compared, ByCodes | ByComponents) && points * fans[0] > max_pivots * leaf_aim;
        let (fans, first_aim) = if twice { ([fans[0] / 2, 2], 4 * leaf_aim) } else { (fans, leaf_aim) };
        let more = if compared == ByComponents { 16 } else { 0 };
        let keep = (2 * list).max(64) + more - BESIDES;
        Self {
            fans,
            leaf_max,
            first_aim,
            leaf_aim,
            max_pivots,
            wanted,
            least,
            keep,
            #[cfg(test)]
            defect: Defect::None,
        }
    }

    #[cfg(test)]
    pub(crate) fn with(self, defect: Defect) -> Self {
        Self { defect, ..self }
    }

    /// How many of the nearest pivots of a point are candidates, too.
    pub(crate) fn far(&self) -> usize {
        self.fans[0].min(BESIDES - 1)
    }

    /// To how many pivots a point goes at a depth.
    pub(crate) fn fan(&self, depth: usize) -> usize {
        self.fans.get(depth).copied().unwrap_or(1)
    }

    /// The number of pivots for a group of `points` points.
    pub(crate) fn pivots(&self, points: usize, depth: usize) -> usize {
        let (fan, aim) = (self.fan(depth), if depth == 0 { self.first_aim } else { self.leaf_aim });
        (points * fan).div_ceil(aim).clamp(fan + 2, self.max_pivots)
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

#[cfg(test)]
mod tests {
    use super::{Compared, Plan};

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
    fn a_point_of_many_is_compared_with_hardly_more() {
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
