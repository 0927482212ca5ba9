//! MIPS-to-L2 augmentation: with one extra coordinate, inner product has the order of Euclidean distance.

use super::Space;
use crate::{BuildError, Control};

/// The extra coordinate of an element, and its squared norm including it.
///
/// Inner product is no metric: the longest vectors are nearest to all others, and a graph of nearest neighbors leads nowhere else.
/// With a coordinate `sqrt(l² - |x|²)` all vectors up to length `l` are equally long, so that being near is mutual, while a query,
/// whose own coordinate is 0, sees the same order as before. With the greatest length for `l` the coordinate outweighs
/// all others where lengths differ much; one that most vectors exceed measured best, from 3 dimensions to word vectors.
#[derive(Clone, Copy)]
pub(crate) struct Augmentation {
    pub(super) coordinate: f32,
    pub(super) square: f32,
}

/// Squared lengths that differ by no more than this are equal: then products have the order of Euclidean distances.
const EQUAL: f32 = 1e-3;

/// The extra coordinates of `elements` elements; none if all are equally long. Runs on the threads of the pool it is called from.
pub(crate) fn augment(
    space: Space<'_>,
    elements: u32,
    control: &Control,
) -> Result<Option<Vec<Augmentation>>, BuildError> {
    let square = |element| -space.distance(element as u32, element as u32);
    let squares = control.section("lengths").fill(elements as usize, square)?;
    let mut sorted = squares.clone();
    sorted.sort_unstable_by(f32::total_cmp);
    if let [shortest, .., longest] = sorted[..]
        && longest - shortest <= EQUAL * longest
    {
        return Ok(None);
    }
    let length = sorted.get(sorted.len() * 3 / 10).copied().filter(|length| length.is_finite()).unwrap_or_default();
    let augmentation =
        |square: f32| Augmentation { coordinate: (length - square).max(0.0).sqrt(), square: square.max(length) };
    Ok(Some(squares.into_iter().map(augmentation).collect()))
}
