//! The pivots of a split: random points. Every other point goes to the part of its nearest pivots.

use distance::{COLS, Nearest, ROWS, Tile};

use crate::space::representation::most;
use crate::space::{Group, Inverted, Products, Query, Representation, Space};

pub(crate) struct Pivots<'a> {
    elements: Vec<u32>,
    packed: Option<Packed<'a>>,
    /// For sparse values.
    inverted: Option<Inverted>,
}

struct Packed<'a> {
    products: Products,
    representation: Representation<'a>,
    group: Group,
}

impl<'a> Pivots<'a> {
    pub(crate) fn new(space: Space<'a>, elements: Vec<u32>) -> Self {
        let packed = space.measure.products.and_then(|products| Packed::new(space, products, &elements));
        let inverted = space.measure.inverts().then(|| {
            let mut inverted = Inverted::default();
            inverted.fill(space, &elements);
            inverted
        });
        Self { elements, packed, inverted }
    }

    /// The `fan` nearest pivots of each element, nearest first, by position; `u32::MAX` where there are fewer.
    pub(crate) fn nearest(&self, space: Space<'_>, elements: &[u32], fan: usize) -> Vec<u32> {
        let mut nearest = Nearest::default();
        let k = fan.min(self.elements.len());
        match (&self.packed, &self.inverted) {
            (Some(packed), _) => packed.compare(space, elements, k, &mut nearest),
            (None, Some(inverted)) => {
                nearest.reset(elements.len(), elements.len(), k);
                let mut sums = Vec::new();
                for (at, &element) in elements.iter().enumerate() {
                    let distances = (0..).zip(inverted.distances(space, element, &mut sums));
                    distances.for_each(|(pivot, distance)| nearest.offer(at, distance, pivot));
                }
            }
            (None, None) => {
                nearest.reset(elements.len(), elements.len(), k);
                let mut query = Query::default();
                for (at, &element) in elements.iter().enumerate() {
                    space.ask(&mut query, element);
                    for (pivot, &other) in self.elements.iter().enumerate() {
                        nearest.offer(at, space.distance_of(&query, other), pivot as u32);
                    }
                }
            }
        }
        let mut assigned = vec![u32::MAX; elements.len() * fan];
        for (at, assigned) in assigned.chunks_exact_mut(fan).enumerate() {
            for (slot, pivot) in assigned.iter_mut().zip(nearest.of(at)) {
                *slot = pivot.element();
            }
        }
        assigned
    }
}

/// For a sample of pivots, the nearest other pivot.
fn gaps(space: Space<'_>, pivots: &[u32]) -> Vec<Gap> {
    const SAMPLE: usize = 32;
    let gap = |at: usize| {
        let others = pivots.iter().enumerate().filter(|&(other, _)| other != at);
        let squares = others.map(|(_, &other)| (space.squared_distance(pivots[at], other), other));
        let (squared, nearest) = squares.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f32::INFINITY, pivots[at]));
        Gap { at, squared, nearest }
    };
    (0..pivots.len()).step_by(pivots.len().div_ceil(SAMPLE).max(1)).map(gap).collect()
}

struct Gap {
    /// The position of the pivot.
    at: usize,
    /// The square of the distance to its nearest neighbor.
    squared: f32,
    nearest: u32,
}

impl<'a> Packed<'a> {
    /// Packs the pivots by the first representation that resolves the distances between most pivots and their nearest neighbors. `None` if none does,
    /// as between clusters far from each other: then pivots are compared one by one.
    fn new(space: Space<'a>, products: Products, pivots: &[u32]) -> Option<Self> {
        let gaps = gaps(space, pivots);
        Representation::of(space, products, pivots).find_map(|representation| {
            let mut group = Group::default();
            representation.pack(space, products, pivots, &mut group);
            let resolved = most(gaps.iter().map(|gap| group.resolves(gap.at, gap.squared)));
            let pairs = gaps.iter().map(|gap| (pivots[gap.at], gap.nearest));
            (resolved && representation.represents_most(space, pairs)).then_some(Self {
                products,
                representation,
                group,
            })
        })
    }

    fn compare(&self, space: Space<'_>, elements: &[u32], k: usize, nearest: &mut Nearest) {
        let (mut group, mut tile) = (Group::default(), Tile::new());
        self.representation.pack(space, self.products, elements, &mut group);
        nearest.reset(elements.len(), group.padded(), k);
        for row_block in 0..group.blocks() {
            let first_row = row_block * ROWS;
            for col_pair in 0..self.group.blocks() / 2 {
                let first_col = col_pair * COLS;
                let limits = (nearest.limits(first_row), &[f32::NEG_INFINITY; COLS]);
                group.tile(row_block, &self.group, col_pair, self.products, limits, &mut tile);
                nearest.offer_rows(&tile, first_row, first_col);
            }
        }
    }
}
