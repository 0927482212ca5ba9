//! Int8 codes of all values, made once per build. Most comparisons use them; with a byte per dimension they need a quarter of the memory of
//! f32 values, and half that of f16.

use std::sync::Arc;

use distance::{CodeKernels, CodeNote, CodeProduct};
use rayon::prelude::*;

use super::components::Components;
use super::representation::most;
use super::{Space, Tiles};
use crate::input::{Bytes, CHUNK};
use crate::random::Random;
use crate::{BuildError, Control};

/// Values from which the center is computed.
const SAMPLE: usize = 1024;
/// The most of them that are compared to find frequent values.
const COMPARED: usize = 256;
/// Codes resolve distances whose squares are at least this many times the expected quantisation error.
const MARGIN: f32 = 10.0;
/// Largest relative error of a squared distance by principal components.
const OFF: f32 = 0.125;

/// Int8 codes of all elements' differences from their mean; under inner product with the extra coordinate as one more dimension. Codes are
/// of all dimensions, or of principal components that keep the order of distances.
pub(crate) struct Codes {
    /// Codes per element, of dimensions or principal components; `stride` bytes lead from one element to the next.
    width: usize,
    stride: usize,
    of_components: bool,
    /// The codes of [`CHUNK`] elements each.
    chunks: Arc<Vec<Bytes>>,
    noted: Vec<Noted>,
    /// Factor of the products.
    pub(crate) scale: f32,
    product: CodeProduct,
    /// Under inner product, codes for Euclidean distances, which leave out the extra coordinate.
    euclidean: Option<Box<Self>>,
}

/// An element's terms, which lie in one cache line and are read with its codes.
#[derive(Clone, Copy, Default)]
#[repr(align(16))]
struct Noted {
    note: CodeNote,
    /// Added to the product of codes to give the distance of the space.
    term: f32,
}

impl Codes {
    /// Encodes the first `elements` elements, and stores the codes where the values are: in memory or in the spool. Codes are of principal
    /// components only if `by_components`, and if these keep the order of distances. Runs on the threads of the pool it is called from.
    pub(crate) fn new(
        space: Space<'_>,
        (tiles, kernels): (Tiles, CodeKernels),
        by_components: bool,
        elements: usize,
        control: &Control,
    ) -> Result<Self, BuildError> {
        let sample = sample(space, elements);
        // A few rows with huge values would move the mean of all far from the others, whose codes would then resolve no distances.
        let mut center = tiles.trimmed_mean(sample.clone());
        let components = if by_components { Components::find(space, tiles, &center, elements, control)? } else { None };
        if components.is_none() {
            move_to_frequent_values(tiles, &sample, &mut center);
        }
        let extra = usize::from(!space.augmentations.is_empty());
        // Together with the extra coordinate, components fill whole tiles.
        let dims = components.as_ref().map_or(tiles.dims, |components| components.count() - extra);
        let width = dims + extra;
        let mut noted = vec![Noted::default(); elements];
        let encode = |(chunk, noted): (usize, &mut [Noted])| {
            let first = (chunk * CHUNK) as u32;
            let values: Vec<&[u8]> = (first..).take(noted.len()).map(|element| space.value(element)).collect();
            let mut bytes = Vec::with_capacity(noted.len() * width);
            let (mut value, mut codes) = (vec![0f32; width], vec![0; width]);
            let mut elements = (first..).zip(noted);
            let put = |coordinates: &[f32]| {
                let Some((element, noted)) = elements.next() else { return };
                value[..dims].copy_from_slice(&coordinates[..dims]);
                if let Some(coordinate) = space.extra_coordinate(element) {
                    value[dims] = coordinate;
                }
                let factor = distance::encode(&value, &mut codes);
                let note = CodeNote::new(&codes, factor);
                let term = match space.squared_length(element) {
                    // |a - b|² = |a|² + |b|² - 2ab; the distance here is half of that, without the norms.
                    Some(length) => (note.squared_norm - length) / 2.0,
                    None => note.squared_norm,
                };
                *noted = Noted { note, term };
                bytes.extend_from_slice(&codes);
            };
            match &components {
                Some(components) => components.along((tiles, kernels), &values, &center, put),
                None => tiles.differences(values.into_iter(), &center, put),
            }
            space.store.stow(bytes)
        };
        let chunks = control.section("codes").map(noted.par_chunks_mut(CHUNK).enumerate(), encode)?;
        let codes = Self {
            width,
            stride: width,
            of_components: components.is_some(),
            chunks: Arc::new(chunks),
            noted,
            scale: tiles.scale(),
            product: kernels.product,
            euclidean: None,
        };
        if space.augmentations.is_empty() { Ok(codes) } else { codes.with_euclidean(dims, control) }
    }

    /// Whether distances by codes deviate from exact ones by no more than the rounding of codes explains, for most pairs of a sample. Codes
    /// of principal components are checked group by group instead.
    pub(crate) fn are_accurate(&self, space: Space<'_>) -> bool {
        const PAIRS: usize = 64;
        const DEVIATIONS: f32 = 6.0;
        if self.of_components {
            return true;
        }
        let elements = self.noted.len();
        let holds = |a: usize| {
            let (a, b) = (a as u32, ((a + elements / 2) % elements) as u32);
            let [own, other] = [a, b].map(|element| self.noted[element as usize].note.factor);
            // A uniform rounding error of up to half a step has the variance step² / 12, per dimension of both.
            let variance = (own * own + other * other) / 12.0;
            let by_all = space.squared_distance(a, b);
            let expected = self.width as f32 * variance + DEVIATIONS * 2.0 * (by_all.max(0.0) * variance).sqrt();
            (space.squared(a, b, self.distance(a, b)) - by_all).abs() <= 2.0 * expected + f32::EPSILON * by_all
        };
        most((0..elements).step_by((elements / PAIRS).max(1)).map(holds))
    }

    /// Drops half of the bits of all codes.
    #[cfg(test)]
    pub(crate) fn halve(&mut self) {
        let coarse = |bytes: &Bytes| {
            let coarse = bytes.get().iter().map(|&code| (code.cast_signed() / 16 * 16).cast_unsigned());
            Bytes::Memory(coarse.collect())
        };
        self.chunks = Arc::new(self.chunks.iter().map(coarse).collect());
        for element in 0..self.noted.len() as u32 {
            let (codes, note) = self.of(element);
            let note = CodeNote::new(codes, note.factor);
            self.noted[element as usize] = Noted { note, term: note.squared_norm };
        }
    }

    fn with_euclidean(self, dims: usize, control: &Control) -> Result<Self, BuildError> {
        let (stride, of_components, chunks) = (self.stride, self.of_components, self.chunks.clone());
        let noted = |at: usize| {
            let noted = self.noted[at];
            let codes: &[u8] = &chunks[at / CHUNK].get()[at % CHUNK * stride..][..dims];
            let note = CodeNote::new(codes, noted.note.factor);
            Noted { note, term: note.squared_norm }
        };
        let noted = control.section("codes without the coordinate").fill(self.noted.len(), noted)?;
        let (width, scale, product) = (dims, -2.0, self.product);
        let euclidean = Self { width, stride, of_components, chunks, noted, scale, product, euclidean: None };
        Ok(Self { euclidean: Some(Box::new(euclidean)), ..self })
    }

    /// Codes for [`Space::euclidean`].
    pub(crate) fn euclidean(&self) -> Option<&Self> {
        self.euclidean.as_deref()
    }

    /// Whether codes are of principal components, not of all dimensions.
    pub(crate) fn of_components(&self) -> bool {
        self.of_components
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// An element's codes and their note.
    pub(crate) fn of(&self, element: u32) -> (&[u8], CodeNote) {
        let (chunk, at) = (element as usize / CHUNK, element as usize % CHUNK);
        (&self.chunks[chunk].get()[at * self.stride..][..self.width], self.noted[element as usize].note)
    }

    pub(crate) fn term(&self, element: u32) -> f32 {
        self.noted[element as usize].term
    }

    /// The distance of two elements; never NaN, even if the squares of both overflow.
    pub(crate) fn distance(&self, a: u32, b: u32) -> f32 {
        let ((a_codes, a_note), (b_codes, b_note)) = (self.of(a), self.of(b));
        let product = (self.product)(a_codes, b_codes) as f32 * b_note.factor;
        distance::ordered(self.scale * a_note.factor * product + self.term(b) + self.term(a))
    }

    /// Whether codes resolve squared distances of this size from an element.
    pub(crate) fn resolves(&self, element: u32, squared: f32) -> bool {
        resolves(self.width, self.noted[element as usize].note.factor, squared)
    }

    /// Whether principal components, if codes are of them, explain about their usual fraction of the distance of two elements. For a few
    /// rows unlike all others, they may not.
    pub(crate) fn represent_pair(&self, space: Space<'_>, a: u32, b: u32) -> bool {
        if !self.of_components {
            return true;
        }
        let by_all = space.squared_distance(a, b);
        (space.squared(a, b, self.distance(a, b)) - by_all).abs() <= OFF * by_all
    }
}

/// Whether codes of `width` dimensions with the step `factor` resolve squared distances of this size.
pub(crate) fn resolves(width: usize, factor: f32, squared: f32) -> bool {
    // Both codes have a uniform rounding error of up to half a step, of variance step² / 12 per dimension.
    let error = width as f32 * factor * factor / 6.0;
    factor > 0.0 && squared >= MARGIN * error
}

fn sample<'a>(space: Space<'a>, elements: usize) -> Vec<&'a [u8]> {
    Random::new(0).stratified_sample(SAMPLE, elements).into_iter().map(|element| space.value(element)).collect()
}

/// Moves a center, in each dimension where half of the values lie within one step of the codes, to the middle one of these values.
///
/// Codes round all such values alike, with an error that depends on the dimension only. The distance to a row with another value there then
/// has the same error for all rows: of many rows at equal distances, such as those that share a tag, all would choose the same few as
/// neighbors. A frequent value at the center has no error.
fn move_to_frequent_values(tiles: Tiles, sample: &[&[u8]], center: &mut [f32]) {
    let (mut differences, mut greatest) = (Vec::new(), Vec::new());
    let some = sample.iter().copied().step_by(sample.len().div_ceil(COMPARED).max(1));
    tiles.differences(some, center, |row| {
        greatest.push(row.iter().fold(0f32, |greatest, x| greatest.max(x.abs())));
        differences.extend_from_slice(row);
    });
    greatest.sort_unstable_by(f32::total_cmp);
    let Some(&usual) = greatest.get(greatest.len() / 2) else { return };
    let (step, half) = (usual / 127.0, greatest.len().div_ceil(2));
    let mut column = Vec::new();
    for (dim, center) in center.iter_mut().enumerate() {
        column.clear();
        column.extend(differences[dim..].iter().step_by(tiles.dims).copied());
        column.sort_unstable_by(f32::total_cmp);
        let narrowest =
            column.windows(half).min_by(|a, b| f32::total_cmp(&(a[half - 1] - a[0]), &(b[half - 1] - b[0])));
        if let Some(near) = narrowest.filter(|near| near[half - 1] - near[0] <= step) {
            *center += near[half / 2];
        }
    }
}

#[cfg(test)]
mod tests {
    use distance::{CodeKernels, code_kernels};

    use super::{Codes, MARGIN, Noted, resolves, sample};
    use crate::Control;
    use crate::input::ValueStore;
    use crate::random::Random;
    use crate::testing::{cube, euclidean, store};

    fn codes<const DIMS: usize>(store: &ValueStore, kernels: CodeKernels, elements: usize) -> Codes {
        let space = euclidean::<DIMS>(store);
        let tiles = space.measure.tiles.unwrap();
        Codes::new(space, (tiles, kernels), false, elements, &Control::default()).unwrap()
    }

    fn squared(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
    }

    #[test]
    fn distances_between_values_on_code_steps_are_exact() {
        let Some(kernels) = code_kernels() else { return };
        // Around their mean, (10, -20), these are 127 steps of one.
        let store = store(&[[137.0, -20.0], [-117.0, -20.0], [10.0, 107.0], [10.0, -147.0]]);
        let codes = codes::<2>(&store, kernels, 4);
        let of = |element| codes.of(element).0.iter().map(|code| code.cast_signed()).collect::<Vec<i8>>();
        assert_eq!([of(0), of(1), of(2), of(3)], [[127, 0], [-127, 0], [0, 127], [0, -127]]);
        assert_eq!((codes.distance(0, 1), codes.distance(0, 2), codes.distance(3, 3)), (64_516.0, 32_258.0, 0.0));
        assert!(codes.are_accurate(euclidean::<2>(&store)));
    }

    #[test]
    fn a_code_is_at_most_half_a_step_off() {
        let Some(kernels) = code_kernels() else { return };
        const COUNT: usize = 100;
        let values = cube::<24>(COUNT, 5);
        let store = store(&values);
        let codes = codes::<24>(&store, kernels, COUNT);
        let space = euclidean::<24>(&store);
        let mean = space.measure.tiles.unwrap().trimmed_mean(sample(space, COUNT));
        for (element, value) in (0u32..).zip(&values) {
            let differences: Vec<f32> = value.iter().zip(&mean).map(|(x, mean)| x - mean).collect();
            let (own, note) = codes.of(element);
            let step = differences.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
            assert!((note.factor / step - 1.0).abs() < 1e-4, "{element}: steps of {}, not {step}", note.factor);
            for (code, difference) in own.iter().zip(&differences) {
                let off = (f32::from(code.cast_signed()) * note.factor - difference).abs();
                assert!(off <= 0.501 * step, "{element}: {difference} is off by {off}, a step is {step}");
            }
        }
    }

    #[test]
    fn a_few_huge_values_do_not_move_the_trimmed_mean() {
        let mut values = cube::<24>(1000, 5);
        values.iter_mut().step_by(200).flatten().for_each(|x| *x *= 1e5);
        let store = store(&values);
        let space = euclidean::<24>(&store);
        let center = space.measure.tiles.unwrap().trimmed_mean(sample(space, values.len()));
        assert!(center.iter().all(|x| x.abs() < 0.1), "{center:?}");
        let Some(kernels) = code_kernels() else { return };
        let codes = codes::<24>(&store, kernels, values.len());
        // Far below the squared distances of the nearest of these points, which are about 6.
        let resolved = (0..1000).filter(|&element| codes.resolves(element, 0.5)).count();
        assert!(resolved >= 990, "{resolved}");
    }

    #[test]
    fn rare_values_are_as_far_from_frequent_ones_in_all_dimensions() {
        let Some(kernels) = code_kernels() else { return };
        const DIMS: usize = 24;
        let mut random = Random::new(1);
        // Two dimensions have a one, each of a frequency of its own; the last dimension has no frequent value.
        let mut value = || -> [f32; DIMS] {
            let mut value = [0.0; DIMS];
            (0..2).for_each(|_| value[(random.unit().powi(2) * (DIMS - 1) as f64) as usize] = 1.0);
            value[DIMS - 1] = random.unit() as f32;
            value
        };
        let values: Vec<[f32; DIMS]> = (0..2000).map(|_| value()).collect();
        let store = store(&values);
        let codes = codes::<DIMS>(&store, kernels, values.len());
        let step = codes.of(0).1.factor;
        for at in 1..values.len() {
            let (exact, found) = (squared(&values[0], &values[at]), codes.distance(0, at as u32));
            // Only the last dimension has an error: half a step of both.
            assert!((exact - found).abs() <= 2.0 * step + 1e-4, "{at}: {exact} {found}");
        }
    }

    #[test]
    fn distances_are_resolved_from_ten_times_the_expected_error() {
        // Two codes of six dimensions: 2 * 6 * step² / 12.
        for (step, error) in [(1.0, 1.0), (2.0, 4.0), (0.5, 0.25)] {
            assert!(resolves(6, step, MARGIN * error), "step {step}");
            assert!(!resolves(6, step, 0.999 * MARGIN * error), "step {step}");
            assert!(!resolves(12, step, MARGIN * error), "step {step}, twice the dimensions");
        }
        assert!(!resolves(6, 0.0, 1.0), "without a step there are no codes");
    }

    /// The memory estimate counts a note in `BY_PRODUCTS`, which builds by inverted lists do not need.
    #[test]
    fn a_note_has_16_bytes() {
        assert_eq!(size_of::<Noted>(), 16);
    }
}
