//! Distances between values: exact ones of the metric, and cheaper approximations by int8 codes and principal components; under inner
//! product with an extra coordinate that gives all vectors the same norm.
//!
//! In: the values. Out: distances of pairs, and of blocks of pairs ([`Group`]), with a check whether the quantisation resolves
//! them. A value is encoded once, in parallel.

mod augmentation;
mod codes;
mod components;
mod explained;
mod group;
mod inverted;
mod matrix;
pub(crate) mod representation;

use distance::{BitKernel, Candidate, CodeKernels, Elements, Kernel, Metric, SparseQuery, TileKernel};
use graph::ElementValues;

use crate::input::ValueStore;
use crate::random::Random;
use crate::search::Loading;
pub(crate) use augmentation::{Augmentation, augment};
pub(crate) use codes::Codes;
pub(crate) use group::Group;
pub(crate) use inverted::Inverted;
pub(crate) use representation::Representation;

/// Sparse values with entries for at least one of this many dimensions, on average, are compared as dense ones: their codes need no more
/// memory than the values, and a pair shares so many dimensions that inverted lists cost more than codes.
pub(crate) const FILLED: usize = 8;

/// A metric for values of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Measure {
    pub(crate) elements: Elements,
    pub(crate) metric: Metric,
    pub(crate) dims: u32,
    pub(crate) kernel: Kernel,
    /// How distances of many pairs are computed at once; `None` for sparse vectors with few entries ([`Self::inverts`]).
    pub(crate) tiles: Option<Tiles>,
    /// Searches cannot distinguish two elements nearer than this.
    pub(crate) resolution: f32,
}

/// The parameters of tiles.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    pub(crate) elements: Elements,
    pub(crate) metric: Metric,
    pub(crate) dims: usize,
    pub(crate) tile: TileOf,
    /// Kernels for int8 codes, if they are faster on this processor.
    pub(crate) codes: Option<CodeKernels>,
}

/// The kernel for tiles of vectors or of bits.
#[derive(Clone, Copy)]
pub(crate) enum TileOf {
    Vectors(TileKernel),
    Bits(BitKernel),
}

/// Values and the distances between them.
#[derive(Clone, Copy)]
pub(crate) struct Space<'a> {
    pub(crate) measure: Measure,
    pub(crate) store: &'a ValueStore,
    /// Under inner product, one for each element; else none.
    pub(crate) augmentations: &'a [Augmentation],
    /// All values as codes, where the processor compares codes faster.
    pub(crate) codes: Option<&'a Codes>,
}

impl Measure {
    /// `None` if values of this type do not have the metric.
    pub(crate) fn new(elements: Elements, metric: Metric, dims: u32) -> Option<Self> {
        let kernel = distance::kernel(elements, metric)?;
        // Sparse values may get tiles later ([`Self::for_values`]).
        let tiles = if elements == Elements::Sparse { None } else { Tiles::new(elements, metric, dims) };
        Some(Self { elements, metric, dims, kernel, tiles, resolution: f32::NEG_INFINITY })
    }

    /// This measure for the first `elements` values of a store, which are those of `rows` rows. Sparse values with many entries ([`FILLED`])
    /// get tiles, as dense ones have. Their entries are divided by the rows, so that the mean is at most the one of the memory estimate.
    pub(crate) fn for_values(self, store: &ValueStore, elements: usize, rows: usize) -> Self {
        const SAMPLE: usize = 4096;
        if self.elements != Elements::Sparse || elements == 0 {
            return self;
        }
        let sample = Random::new(0).stratified_sample(SAMPLE, elements);
        let entries: usize = sample.iter().map(|&element| distance::sparse_entries(store.value(element)).len()).sum();
        let filled = entries as f64 / sample.len() as f64 * elements as f64 * FILLED as f64
            >= f64::from(self.dims) * rows as f64;
        // Without kernels for codes, a tile may cost more than inverted lists.
        let tiles = Tiles::new(self.elements, self.metric, self.dims);
        Self { tiles: tiles.filter(|tiles| filled && tiles.codes.is_some()), ..self }
    }

    /// Whether tiles compute products, from which Euclidean distance follows.
    pub(crate) fn has_products(&self) -> bool {
        self.tiles.is_some() && matches!(self.metric, Metric::L2 | Metric::InnerProduct | Metric::Cosine)
    }

    /// Whether distances of many pairs cost least by [`Inverted`] lists: those of sparse values. All others have tiles.
    pub(crate) fn inverts(&self) -> bool {
        self.tiles.is_none()
    }

    /// Prepares `query` for distances from a value, which need not be an element's, to many others.
    pub(crate) fn prepare(&self, query: &mut Query, value: &[u8]) {
        if self.elements == Elements::Sparse {
            query.sparse.get_or_insert_default().set(self.metric, self.dims, value);
        }
    }

    /// The distance of `value`, for which `prepare` was called, to another.
    pub(crate) fn distance_of(&self, query: &Query, value: &[u8], other: &[u8]) -> f32 {
        query.sparse.as_ref().map_or_else(|| (self.kernel)(value, other), |sparse| sparse.distance(other))
    }

    /// The metric for building a graph that is searched by this one. Values under cosine have norm one, where Euclidean distance has the
    /// same order, and distinguishes near-identical values whose products are equal in f32.
    pub(crate) fn for_building(self) -> Self {
        match self.metric {
            // Norms in half precision are 1 to three digits only. Among near-identical values the errors of the norms decide the order by
            // inner product, which is what searches see; Euclidean distance has another order.
            Metric::Cosine if self.elements != Elements::F16 => {
                let euclidean = self.with_metric(Metric::L2).unwrap_or(self);
                // A search computes products near 1 in f32; the squared distance is twice their difference from 1.
                Self { resolution: 4.0 * f32::EPSILON, ..euclidean }
            }
            _ => self,
        }
    }

    /// Under inner product: Euclidean distance.
    pub(crate) fn euclidean(&self) -> Option<Self> {
        // Called for every element: the kernel is looked up only if needed.
        if self.metric != Metric::InnerProduct {
            return None;
        }
        self.with_metric(Metric::L2)
    }

    /// The same values by another metric that has a dot-product form.
    pub(crate) fn with_metric(&self, metric: Metric) -> Option<Self> {
        let kernel = distance::kernel(self.elements, metric)?;
        let tiles = self.tiles.and_then(|_| Tiles::new(self.elements, metric, self.dims));
        Some(Self { metric, kernel, tiles, ..*self })
    }
}

/// An element or value that is compared with many others. Its memory is reused from one to the next.
#[derive(Default)]
pub(crate) struct Query {
    element: u32,
    sparse: Option<Box<SparseQuery>>,
}

impl<'a> Space<'a> {
    /// A space of exact distances.
    pub(crate) fn exact(measure: Measure, store: &'a ValueStore) -> Self {
        Self { measure, store, augmentations: &[], codes: None }
    }

    pub(crate) fn value(&self, element: u32) -> &'a [u8] {
        self.store.value(element)
    }
}

impl Space<'_> {
    /// Prepares for distances of an element to many others.
    pub(crate) fn prepare(&self, query: &mut Query, element: u32) {
        query.element = element;
        self.measure.prepare(query, self.value(element));
    }

    /// The distance of the element for which `prepare` was called to another.
    pub(crate) fn distance_of(&self, query: &Query, other: u32) -> f32 {
        match &query.sparse {
            Some(sparse) => self.augmented(query.element, other, sparse.distance(self.value(other))),
            None => self.distance(query.element, other),
        }
    }

    /// The distances of other elements from `element`, by codes if there are codes.
    pub(crate) fn distances_from<'s>(
        &'s self,
        query: &'s mut Query,
        element: u32,
    ) -> Loading<impl Fn(u32) -> f32 + Copy + 's, impl Fn(u32) -> &'s [u8] + Copy + 's> {
        self.prepare(query, element);
        let query = &*query;
        Loading {
            distance: move |other| match self.codes {
                Some(codes) => codes.distance(element, other),
                None => self.distance_of(query, other),
            },
            bytes: move |other| self.codes.map_or_else(|| self.value(other), |codes| codes.of(other).0),
        }
    }

    pub(crate) fn distance(&self, a: u32, b: u32) -> f32 {
        self.augmented(a, b, (self.measure.kernel)(self.value(a), self.value(b)))
    }

    /// Adds the extra coordinates' part to a distance of values.
    fn augmented(&self, a: u32, b: u32, distance: f32) -> f32 {
        match (self.augmentations.get(a as usize), self.augmentations.get(b as usize)) {
            (Some(a), Some(b)) => distance - a.coordinate * b.coordinate,
            _ => distance,
        }
    }

    /// An element as a candidate of another, with the distance by codes if there are codes.
    pub(crate) fn candidate(&self, of: u32, element: u32) -> Candidate {
        let distance = self.codes.map_or_else(|| self.distance(of, element), |codes| codes.distance(of, element));
        Candidate::new(distance, element)
    }

    /// This space; without codes unless they resolve and represent the distance from an element to its fourth neighbor, or to the last if it
    /// has fewer. `neighbors` come nearest first.
    pub(crate) fn trusted(self, element: u32, neighbors: &[u32]) -> Self {
        const RANK: usize = 3;
        let near = neighbors.get(RANK).or(neighbors.last());
        let resolved = |codes: &&Codes| {
            near.is_none_or(|&near| {
                codes.resolves(element, self.squared_distance(element, near))
                    && codes.represent_pair(self, element, near)
            })
        };
        Self { codes: self.codes.filter(resolved), ..self }
    }

    /// Under inner product: the same values by Euclidean distance.
    pub(crate) fn euclidean(&self) -> Option<Space<'_>> {
        let codes = self.codes.and_then(Codes::euclidean);
        Some(Space { measure: self.measure.euclidean()?, store: self.store, augmentations: &[], codes })
    }

    /// The limit of the diversity rule: the distance whose square, as in a Euclidean space, is that of `distance` divided by `slack`.
    /// `distance` is that of `a` and `b`.
    pub(crate) fn rule_limit(&self, a: u32, b: u32, distance: f32, slack: f32) -> f32 {
        // |a - b|² / 2 = (|a|² + |b|²) / 2 - ab
        let lengths = self.squared_length(a).zip(self.squared_length(b));
        let squares = lengths.map_or(0.0, |(a, b)| (a + b) / 2.0);
        ((squares + distance) * slack.recip() - squares).max(self.measure.resolution)
    }

    /// [`Space::rule_limit`] for the distances of many elements from `a`.
    pub(crate) fn rule_limits(&self, a: u32, others: &[u32], distances: &[f32], slack: f32, limits: &mut Vec<f32>) {
        let each = others.iter().zip(distances);
        limits.clear();
        match self.measure.metric {
            Metric::InnerProduct | Metric::Cosine => {
                limits.extend(each.map(|(&b, &distance)| self.rule_limit(a, b, distance, slack)));
            }
            _ => {
                let least = self.measure.resolution;
                limits.extend(distances.iter().map(|distance| (distance * slack.recip()).max(least)));
            }
        }
    }

    /// The square of a distance as in a Euclidean space.
    pub(crate) fn squared_distance(&self, a: u32, b: u32) -> f32 {
        self.squared(a, b, self.distance(a, b))
    }

    /// [`Self::squared_distance`] from a known `distance` of `a` and `b`.
    pub(crate) fn squared(&self, a: u32, b: u32, distance: f32) -> f32 {
        let lengths = self.squared_length(a).zip(self.squared_length(b));
        lengths.map_or(distance, |(a, b)| a + b + 2.0 * distance)
    }

    /// The squared length of an element with its extra coordinate, where distances are products.
    pub(crate) fn squared_length(&self, element: u32) -> Option<f32> {
        match self.measure.metric {
            Metric::Cosine => Some(1.0),
            _ => Some(self.augmentations.get(element as usize)?.square),
        }
    }

    /// The augmentation coordinates of `elements`, in order; empty without augmentation.
    pub(crate) fn extra_coordinates(&self, elements: &[u32]) -> Vec<f32> {
        elements.iter().map_while(|&element| self.extra_coordinate(element)).collect()
    }

    /// The augmentation coordinate of an element, if there is one.
    pub(crate) fn extra_coordinate(&self, element: u32) -> Option<f32> {
        Some(self.augmentations.get(element as usize)?.coordinate)
    }
}

impl Tiles {
    /// `None` if values of this type do not have the metric.
    fn new(elements: Elements, metric: Metric, dims: u32) -> Option<Self> {
        let (tile, codes) = match metric {
            Metric::L2 | Metric::InnerProduct | Metric::Cosine => {
                (TileOf::Vectors(distance::tile_kernel()), distance::code_kernels())
            }
            Metric::L1 => (TileOf::Vectors(distance::difference_kernel()), None),
            Metric::Hamming | Metric::Jaccard => (TileOf::Bits(distance::bit_kernel(metric)?), None),
        };
        Some(Self { elements, metric, dims: dims as usize, tile, codes })
    }

    /// Calls `put` with each value's differences from `center`.
    pub(crate) fn differences<'v>(
        &self,
        values: impl Iterator<Item = &'v [u8]>,
        center: &[f32],
        mut put: impl FnMut(&[f32]),
    ) {
        let mut differences = vec![0f32; self.dims];
        for value in values {
            distance::decode(self.elements, value, &mut differences);
            differences.iter_mut().zip(center).for_each(|(x, center)| *x -= center);
            put(&differences);
        }
    }

    /// The trimmed mean of values, without the tenth that is farthest from their mean: a few huge values do not move it. Zeros if it is not
    /// finite.
    pub(crate) fn trimmed_mean(&self, mut values: Vec<&[u8]>) -> Vec<f32> {
        let mut decoded = vec![0f32; self.dims];
        let mut mean = |values: &[&[u8]]| {
            let mut center = vec![0f32; self.dims];
            let share = 1.0 / values.len().max(1) as f32;
            for value in values {
                distance::decode(self.elements, value, &mut decoded);
                center.iter_mut().zip(&decoded).for_each(|(sum, x)| *sum += x * share);
            }
            center
        };
        let center = mean(&values);
        let mut squares = Vec::with_capacity(values.len());
        // As f32 the squares of a mean that huge values have moved would overflow.
        let square = |x: &f32| f64::from(*x) * f64::from(*x);
        self.differences(values.iter().copied(), &center, |differences| {
            squares.push(differences.iter().map(square).sum::<f64>());
        });
        let mut sorted = squares.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        if let Some(&most) = sorted.get(sorted.len() * 9 / 10) {
            let mut squares = squares.into_iter();
            values.retain(|_| squares.next().is_some_and(|square| square <= most));
        }
        let mut center = mean(&values);
        if center.iter().any(|x| !x.is_finite()) {
            center.fill(0.0);
        }
        center
    }

    /// The factor by which a tile's sums enter its distances.
    pub(crate) fn scale(&self) -> f32 {
        match self.metric {
            Metric::L1 => 1.0,
            Metric::L2 => -2.0,
            _ => -1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use distance::{Elements, Metric};

    use super::{FILLED, Group, Measure, Space};
    use crate::random::Random;
    use crate::testing::{sparse, store_of};

    const DIMS: usize = 80;

    /// Sparse values with `entries` entries each.
    fn values(entries: usize) -> impl Iterator<Item = Vec<u8>> {
        let mut random = Random::new(3);
        (0..20).map(move |_| {
            let mut dims = random.sample(entries, DIMS);
            dims.sort_unstable();
            sparse(&dims.into_iter().map(|dim| (dim as u32, random.unit() as f32 - 0.5)).collect::<Vec<_>>())
        })
    }

    #[test]
    fn sparse_values_with_many_entries_get_tiles() {
        let tiles = |entries: usize, metric| {
            let measure = Measure::new(Elements::Sparse, metric, DIMS as u32).unwrap();
            measure.for_values(&store_of(values(entries)), 20, 20).tiles.is_some()
        };
        let coded = distance::code_kernels().is_some();
        for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
            assert_eq!(tiles(DIMS / FILLED, metric), coded);
            assert!(!tiles(DIMS / FILLED - 1, metric));
        }
        assert!(!tiles(DIMS, Metric::L1), "codes have no Manhattan distance");
        let measure = Measure::new(Elements::Sparse, Metric::L2, DIMS as u32).unwrap();
        assert!(
            measure.for_values(&store_of(values(DIMS / FILLED)), 20, 21).tiles.is_none(),
            "a row more, without entries of its own"
        );
    }

    #[test]
    fn tiles_of_sparse_values_have_the_distances_of_the_kernels() {
        let store = store_of(values(DIMS / 2));
        for metric in [Metric::L2, Metric::InnerProduct] {
            let measure = Measure::new(Elements::Sparse, metric, DIMS as u32).unwrap().for_values(&store, 20, 20);
            let Some(tiles) = measure.tiles else { return };
            let (space, all) = (Space::exact(measure, &store), (0..20).collect::<Vec<u32>>());
            let (mut group, mut distances) = (Group::default(), Vec::new());
            group.pack(space, tiles, &all, None, false);
            group.all_pairs(tiles, &mut distances);
            for (a, b) in (0..20).flat_map(|a| (a + 1..20).map(move |b| (a, b))) {
                let found = distances[a as usize * group.padded() + b as usize];
                assert!((found - space.distance(a, b)).abs() < 1e-4, "{metric:?} {a} {b}");
            }
        }
    }
}
