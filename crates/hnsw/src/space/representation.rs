//! The representation by which a group of points is compared, and whether it resolves their distances.
//!
//! Candidates are compared by the cheapest representation that resolves them: the int8 codes of the build; else the group's values around
//! their own mean, quantised once more; else these values themselves; else exact distances, one by one. All passes decide here: a
//! representation suits a group if most of the group's near pairs are farther apart than the quantisation error, and if principal
//! components explain their usual fraction of these distances.

use distance::Metric;

use super::{Codes, Group, Space, Tiles, group};

/// Near pairs for checking principal components in a group whose near elements are adjacent.
const PAIRS: usize = 4;

/// A representation of the values of a group.
pub(crate) enum Representation<'a> {
    /// The codes of the build, of all dimensions or of principal components.
    Codes(&'a Codes),
    /// The values around the group's mean, as codes.
    CenteredCodes(Option<Vec<f32>>),
    /// The values around the group's mean.
    Centered(Option<Vec<f32>>),
}

impl<'a> Representation<'a> {
    /// The representations for a group, cheapest first.
    pub(crate) fn of(space: Space<'a>, tiles: Tiles, points: &[u32]) -> impl Iterator<Item = Self> {
        let coded = tiles.codes.into_iter();
        let coded = coded.map(move |_| Self::CenteredCodes(group::center(space, tiles, points)));
        let centered = std::iter::once_with(move || Self::centered(space, tiles, points));
        space.codes.map(Self::Codes).into_iter().chain(coded).chain(centered)
    }

    /// The most precise representation that has tiles.
    pub(crate) fn centered(space: Space<'_>, tiles: Tiles, points: &[u32]) -> Self {
        Self::Centered(group::center(space, tiles, points))
    }

    /// Packs points for tiles.
    pub(crate) fn pack(&self, space: Space<'_>, tiles: Tiles, points: &[u32], group: &mut Group) {
        match self {
            Self::Codes(codes) => group.pack_codes(codes, points),
            Self::CenteredCodes(center) => group.pack(space, tiles, points, center.as_deref(), true),
            Self::Centered(center) => group.pack(space, tiles, points, center.as_deref(), false),
        }
    }

    /// Whether distances by tiles are too imprecise to be compared with those of other groups: each group has codes of its own, and the
    /// expanded square |a|² + |b|² - 2ab loses digits by cancellation.
    pub(crate) fn is_rough(&self, tiles: Tiles) -> bool {
        match self {
            Self::Codes(_) => false,
            Self::CenteredCodes(_) => true,
            Self::Centered(_) => tiles.metric == Metric::L2,
        }
    }

    /// Whether principal components, if the codes are of them, explain their usual fraction of most of these distances.
    pub(crate) fn represents_most(&self, space: Space<'_>, pairs: impl Iterator<Item = (u32, u32)>) -> bool {
        match self {
            Self::Codes(codes) if codes.of_components() => most(pairs.map(|(a, b)| codes.represent_pair(space, a, b))),
            _ => true,
        }
    }
}

/// Whether at least three quarters of the checks hold.
pub(crate) fn most(checks: impl Iterator<Item = bool>) -> bool {
    let (held, all) = checks.fold((0, 0), |(held, all), check| (held + usize::from(check), all + 1));
    held * 4 >= all * 3
}

/// Up to `PAIRS` pairs of adjacent elements, for a group in which near elements are adjacent.
pub(crate) fn near_pairs(group: impl ExactSizeIterator<Item = u32> + Clone) -> impl Iterator<Item = (u32, u32)> {
    let step = (group.len() / PAIRS).max(1);
    group.clone().step_by(step).zip(group.skip(1).step_by(step)).take(PAIRS)
}

#[cfg(test)]
mod tests {
    use super::{most, near_pairs};

    #[test]
    fn most_are_three_quarters() {
        let checks = |held: usize, all: usize| most((0..all).map(|at| at < held));
        assert!(checks(3, 4) && checks(4, 4) && checks(0, 0) && checks(24, 32));
        assert!(!checks(2, 4) && !checks(0, 1) && !checks(23, 32));
    }

    #[test]
    fn near_pairs_are_spread() {
        assert_eq!(near_pairs(0..100).collect::<Vec<_>>(), [(0, 1), (25, 26), (50, 51), (75, 76)]);
        assert_eq!(near_pairs(7..9).collect::<Vec<_>>(), [(7, 8)]);
        assert_eq!(near_pairs(7..8).count(), 0);
    }
}
