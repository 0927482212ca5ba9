//! Principal components: the few directions in which values vary most, instead of many dimensions.
//!
//! Embeddings of a thousand dimensions may vary in a few hundred directions. If these explain about the same fraction of all distances,
//! codes of them suffice, which are much shorter and faster to compare.

use distance::{BLOCK, COLS, CodeKernels, CodePanel, Elements, Tile, TileInput};

use super::explained::{self, Found};
use super::matrix::{ALL_PRODUCTS, Matrix};
use super::{Space, Tiles};
use crate::random::Random;
use crate::{BuildError, Control};

/// Values from which components are computed.
const SAMPLE: usize = 2048;
/// With fewer elements, computing components costs more time and memory than it saves.
const FEWEST: usize = 8 * SAMPLE;
/// Components per step: a tile of codes takes this number.
pub(crate) const STEP: usize = 64;
/// Components computed at first, and then, if they do not suffice.
const MOST: [usize; 2] = [256, 512];
/// Steps of subspace iteration.
const TURNS: usize = 2;
/// Values that are packed at a time: they fit into a core's cache.
const AT_ONCE: usize = 64;

pub(crate) struct Components {
    count: usize,
    /// The components, quantised.
    panel: CodePanel,
    /// Factor of coordinates: distances then equal those of all dimensions on average.
    scale: f32,
}

impl Components {
    /// Principal components, at most a third of the dimensions, that keep the order of distances; `None` if the values have none.
    /// Runs on the threads of the pool it is called from.
    pub(crate) fn find(
        space: Space<'_>,
        tiles: Tiles,
        center: &[f32],
        elements: usize,
        control: &Control,
    ) -> Result<Option<Self>, BuildError> {
        let third = tiles.dims / 3 / STEP * STEP;
        if third == 0 || elements < FEWEST {
            return Ok(None);
        }
        let Some(sample) = sample(space, tiles, center, elements) else { return Ok(None) };
        control.check()?;
        let by_dimension = sample.transposed(control)?;
        let mut most = MOST.map(|most| most.min(third)).to_vec();
        most.dedup();
        for most in most {
            // Subspace iteration, which starts from some of the values.
            let mut directions = sample.evenly_spaced(most);
            for _ in 0..TURNS {
                let along = sample.products(&directions, control)?.transposed(control)?;
                directions = by_dimension.products(&along, control)?.transposed(control)?;
                directions.make_orthogonal(control)?;
            }
            let along = sample.products(&directions, control)?;
            match explained::measure(&sample, &along, control)? {
                Found::Few { count, fraction } => return Ok(Some(Self::new(&directions, count, fraction))),
                Found::MaybeMore => {}
                Found::Nothing => break,
            }
        }
        Ok(None)
    }

    fn new(directions: &Matrix, count: usize, fraction: f32) -> Self {
        let width = directions.width;
        let bytes: Vec<u8> = directions.values[..count * width].iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut panel = CodePanel::default();
        panel.fill(Elements::F32, width, bytes.chunks_exact(4 * width), None, &[]);
        Self { count, panel, scale: fraction.recip().sqrt() }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The coordinates of values' differences from `center` along the components: `each` gets [`Self::count`] of each value, in order.
    pub(crate) fn along(
        &self,
        (tiles, kernels): (Tiles, CodeKernels),
        values: &[&[u8]],
        center: &[f32],
        mut each: impl FnMut(&[f32]),
    ) {
        let input = TileInput { scale: self.scale, ..ALL_PRODUCTS };
        let (mut packed, mut tile) = (CodePanel::default(), Tile::default());
        let mut along = Matrix { width: self.count, values: vec![0.0; BLOCK * self.count] };
        for values in values.chunks(AT_ONCE) {
            packed.fill(tiles.elements, tiles.dims, values.iter().copied(), Some(center), &[]);
            for (block, values) in values.chunks(BLOCK).enumerate() {
                for (pair, first) in (0..self.count).step_by(COLS).enumerate() {
                    let cols = [2 * pair, 2 * pair + 1].map(|col| self.panel.block(col));
                    (kernels.tile)(packed.block(block), cols, &input, &mut tile);
                    for (along, tile) in along.values.chunks_exact_mut(self.count).zip(&tile.distances) {
                        along[first..][..COLS].copy_from_slice(tile);
                    }
                }
                (0..values.len()).for_each(|at| each(along.row(at)));
            }
        }
    }
}

/// Differences of a sample of values from `center`, divided by the greatest coordinate, so that products neither overflow nor underflow in
/// f32. `None` if that coordinate, or its inverse, is not finite.
fn sample(space: Space<'_>, tiles: Tiles, center: &[f32], elements: usize) -> Option<Matrix> {
    let some = Random::new(1).stratified_sample(SAMPLE, elements).into_iter().map(|element| space.value(element));
    let mut values = Vec::with_capacity(SAMPLE * tiles.dims);
    tiles.differences(some, center, |differences| values.extend_from_slice(differences));
    let greatest = values.iter().fold(0f32, |greatest, x| greatest.max(x.abs()));
    let factor = greatest.recip();
    values.iter_mut().for_each(|x| *x *= factor);
    (greatest.is_finite() && factor.is_finite()).then_some(Matrix { width: tiles.dims, values })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Components, FEWEST};
    use crate::input::ValueStore;
    use crate::random::Random;
    use crate::{Control, testing};

    const DIMS: usize = 256;

    /// Evenly distributed between -1 and 1.
    fn number(random: &mut Random) -> f32 {
        2.0 * random.unit() as f32 - 1.0
    }

    /// Values that vary along `directions` directions, by `besides` along all others; all times a factor.
    fn store(directions: usize, besides: f32, factor: f32) -> Arc<ValueStore> {
        let mut random = Random::new(5);
        let mixed: Vec<f32> = (0..directions * DIMS).map(|_| number(&mut random)).collect();
        let value = |_| {
            let mut value: Vec<f32> = (0..DIMS).map(|_| 3.0 + besides * number(&mut random)).collect();
            for direction in mixed.chunks_exact(DIMS) {
                let along = number(&mut random);
                value.iter_mut().zip(direction).for_each(|(x, direction)| *x += along * direction);
            }
            std::array::from_fn(|at| value[at] * factor)
        };
        let values: Vec<[f32; DIMS]> = (0..FEWEST + 100).map(value).collect();
        testing::store(&values)
    }

    fn find(store: &ValueStore, elements: usize, factor: f32) -> Option<Components> {
        let space = testing::euclidean::<DIMS>(store);
        Components::find(space, space.measure.tiles.unwrap(), &[3.0 * factor; DIMS], elements, &Control::default())
            .unwrap()
    }

    #[test]
    fn values_of_few_directions_have_few_components() {
        let (store, on_a_line) = (store(30, 0.03, 1.0), store(1, 0.0, 1.0));
        let components = find(&store, FEWEST, 1.0).unwrap();
        assert_eq!(components.count(), 64);
        assert!(find(&store, FEWEST - 1, 1.0).is_none(), "of so few elements");
        assert_eq!(find(&on_a_line, FEWEST, 1.0).unwrap().count(), 64, "most of them nothing");
        let Some(kernels) = distance::code_kernels() else { return };
        let measure = testing::euclidean::<DIMS>(&store).measure;
        let values: Vec<&[u8]> = (0..150).map(|element| graph::ElementValues::value(&*store, element)).collect();
        let mut along = Vec::new();
        let tiles = measure.tiles.unwrap();
        components.along((tiles, kernels), &values, &[3.0; DIMS], |coordinates| along.push(coordinates.to_vec()));
        assert_eq!(along.len(), values.len());
        for at in 1..values.len() {
            let by_all = (measure.kernel)(values[at - 1], values[at]);
            let few: f32 = along[at - 1].iter().zip(&along[at]).map(|(a, b)| (a - b) * (a - b)).sum();
            assert!((few / by_all - 1.0).abs() < 0.03, "{few} {by_all}");
        }
    }

    #[test]
    fn tiny_and_huge_values_have_components() {
        for factor in [1e-30, 1e30] {
            let components = find(&store(30, 0.03, factor), FEWEST, factor);
            assert_eq!(components.map(|components| components.count()), Some(64), "{factor:e}");
        }
    }

    #[test]
    fn values_of_many_directions_have_no_components() {
        assert!(find(&store(30, 1.0, 1.0), FEWEST, 1.0).is_none());
        assert!(find(&store(0, 1.0, 1.0), FEWEST, 1.0).is_none());
    }
}
