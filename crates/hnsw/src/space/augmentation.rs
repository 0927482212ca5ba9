//! MIPS-to-L2 augmentation (Bachrach et al., RecSys 2014): with one extra coordinate, inner product has the order of Euclidean distance.

use super::Space;
use crate::{BuildError, Control};

/// The extra coordinate of an element, and its squared norm including it.
///
/// Inner product is no metric: the longest vectors are nearest to all others, and in a graph of nearest neighbors all links lead to them.
/// With a coordinate `sqrt(l² - |x|²)` all vectors up to length `l` are equally long, so that being near is mutual, while a query, whose
/// own coordinate is 0, sees the same order as before. With the greatest length for `l`, the coordinate outweighs all others if lengths
/// differ much. The 30th percentile, which most vectors exceed, measured best, from 3 dimensions to word vectors.
#[derive(Clone, Copy)]
pub(crate) struct Augmentation {
    pub(super) coordinate: f32,
    pub(super) square: f32,
}

/// Squared lengths that differ by at most this fraction count as equal: then products have the order of Euclidean distances.
const EQUAL: f32 = 1e-3;

/// The extra coordinates of `elements` elements; none if all but a few shorter ones are equally long. Runs on the threads of the pool it is called from.
pub(crate) fn augment(
    space: Space<'_>,
    elements: u32,
    control: &Control,
) -> Result<Option<Vec<Augmentation>>, BuildError> {
    let square = |element| -space.distance(element as u32, element as u32);
    let squares = control.section("lengths").fill(elements as usize, square)?;
    let mut sorted = squares.clone();
    sorted.sort_unstable_by(f32::total_cmp);
    // A few shorter ones, such as empty texts with a value of zeros, are nearest neighbors of nothing. The longest may be infinite.
    let shortest = sorted.get(sorted.len() / 100);
    if shortest.zip(sorted.last()).is_some_and(|(shortest, longest)| *shortest >= (1.0 - EQUAL) * longest) {
        return Ok(None);
    }
    let length = sorted.get(sorted.len() * 3 / 10).copied().filter(|length| length.is_finite()).unwrap_or_default();
    let augmentation =
        |square: f32| Augmentation { coordinate: (length - square).max(0.0).sqrt(), square: square.max(length) };
    Ok(Some(squares.into_iter().map(augmentation).collect()))
}

#[cfg(test)]
mod tests {
    use distance::{Elements, Metric};

    use super::{Augmentation, augment};
    use crate::Control;
    use crate::space::{Measure, Space};
    use crate::testing::store;

    /// The extra coordinate and the squared norm of values with these squared norms.
    fn of(squares: &[f32]) -> Option<Vec<(f32, f32)>> {
        let store = store(&squares.iter().map(|square| [0.0, square.sqrt()]).collect::<Vec<_>>());
        let space = Space::exact(Measure::new(Elements::F32, Metric::InnerProduct, 2).unwrap(), &store);
        let all = augment(space, squares.len() as u32, &Control::default()).unwrap()?;
        Some(all.iter().map(|&Augmentation { coordinate, square }| (coordinate, square)).collect())
    }

    #[test]
    fn norms_are_filled_up_to_the_30th_percentile() {
        // Three of ten are shorter than 36.
        let squares = [1.0, 11.0, 100.0, 36.0, 49.0, 64.0, 81.0, 27.0, 121.0, 144.0];
        let all = of(&squares).unwrap();
        for (&square, (coordinate, filled)) in squares.iter().zip(all) {
            let expected = (36.0 - square).max(0.0).sqrt();
            assert!((coordinate - expected).abs() < 1e-5, "{square}: {coordinate}");
            assert!((filled - square.max(36.0)).abs() < 1e-4, "{square}: {filled}");
        }
    }

    #[test]
    fn equal_norms_have_no_coordinate() {
        assert_eq!(of(&[4.0, 4.0, 4.0]), None);
        assert_eq!(of(&[10_000.0, 9991.0]), None, "equal but for rounding");
        assert!(of(&[10_000.0, 9989.0]).is_some());
        let with = |square| [vec![1.0; 1000], vec![square]].concat();
        assert_eq!(of(&with(0.0)), None, "one value of zeros");
        assert!(of(&with(4.0)).is_some(), "one that is near to all others");
    }

    #[test]
    fn a_norm_that_overflows_is_not_equal_to_others() {
        let store = store(&[[0.0, 1.0], [0.0, 3.0], [0.0, 2e19]]);
        let space = Space::exact(Measure::new(Elements::F32, Metric::InnerProduct, 2).unwrap(), &store);
        assert!(augment(space, 3, &Control::default()).unwrap().is_some());
    }
}
