//! The pivots of a split: random points. Every other point goes to the part of its nearest pivots.

use distance::{COLS, Nearest, ROWS, Tile};

use crate::space::representation::most;
use crate::space::{Group, Inverted, Products, Query, Representation, Space};

pub(crate) struct Pivots<'a> {
    elements: Vec<u32>,
    comparison: Comparison<'a>,
}

/// How points are compared with the pivots.
enum Comparison<'a> {
    /// In blocks, by products.
    Blocks(Packed<'a>),
    /// Sparse values, by the dimensions they share with the pivots.
    Inverted(Inverted),
    OneByOne,
}

struct Packed<'a> {
    products: Products,
    representation: Representation<'a>,
    group: Group,
}

/// What a thread reuses from task to task.
#[derive(Default)]
pub(crate) struct Scratch {
    nearest: Nearest,
    group: Group,
    tile: Tile,
    query: Query,
    sums: Vec<f64>,
}

impl<'a> Pivots<'a> {
    pub(crate) fn new(space: Space<'a>, elements: Vec<u32>) -> Self {
        let packed = space.measure.products.and_then(|products| Packed::new(space, products, &elements));
        let comparison = match packed {
            Some(packed) => Comparison::Blocks(packed),
            None if space.measure.inverts() => {
                let mut inverted = Inverted::default();
                inverted.fill(space, &elements);
                Comparison::Inverted(inverted)
            }
            None => Comparison::OneByOne,
        };
        Self { elements, comparison }
    }

    /// Writes the nearest pivots of each element, as many as there is room for, nearest first, by position; `u32::MAX` where there are fewer.
    pub(crate) fn nearest(&self, space: Space<'_>, elements: &[u32], scratch: &mut Scratch, assigned: &mut [u32]) {
        let fan = assigned.len() / elements.len();
        let k = fan.min(self.elements.len());
        let Scratch { nearest, group, tile, query, sums } = scratch;
        match &self.comparison {
            Comparison::Blocks(packed) => packed.compare(space, elements, k, (nearest, group, tile)),
            Comparison::Inverted(inverted) => {
                nearest.reset(elements.len(), elements.len(), k);
                for (at, &element) in elements.iter().enumerate() {
                    let distances = (0..).zip(inverted.distances(space, element, sums));
                    distances.for_each(|(pivot, distance)| nearest.offer(at, distance, pivot));
                }
            }
            Comparison::OneByOne => {
                nearest.reset(elements.len(), elements.len(), k);
                for (at, &element) in elements.iter().enumerate() {
                    space.ask(query, element);
                    for (pivot, &other) in self.elements.iter().enumerate() {
                        nearest.offer(at, space.distance_of(query, other), pivot as u32);
                    }
                }
            }
        }
        assigned.fill(u32::MAX);
        for (at, assigned) in assigned.chunks_exact_mut(fan).enumerate() {
            for (slot, pivot) in assigned.iter_mut().zip(nearest.of(at)) {
                *slot = pivot.element();
            }
        }
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

    fn compare(
        &self,
        space: Space<'_>,
        elements: &[u32],
        k: usize,
        (nearest, group, tile): (&mut Nearest, &mut Group, &mut Tile),
    ) {
        self.representation.pack(space, self.products, elements, group);
        nearest.reset(elements.len(), group.padded(), k);
        for row_block in 0..group.blocks() {
            let first_row = row_block * ROWS;
            for col_pair in 0..self.group.blocks() / 2 {
                let first_col = col_pair * COLS;
                let limits = (nearest.limits(first_row), &[f32::NEG_INFINITY; COLS]);
                group.tile(row_block, &self.group, col_pair, self.products, limits, tile);
                nearest.offer_rows(tile, first_row, first_col);
            }
        }
    }
}
