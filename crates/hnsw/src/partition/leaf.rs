//! All pairs of a leaf.

use distance::{COLS, Candidate, Nearest, ROWS, Tile};

use crate::space::Codes;
use crate::space::Group;
use crate::space::group;
use crate::space::{Products, Query, Space};
use crate::{BuildError, Control};

/// Pairs of blocks beside the diagonal that come first.
const BAND: usize = 2;

/// What is found within a leaf, and what a thread reuses from leaf to leaf.
#[derive(Default)]
pub(crate) struct Leaf {
    elements: Vec<u32>,
    /// For each element, whether the distance to the last of its list is above the quantisation error.
    resolved: Vec<bool>,
    /// Whether distances are only of codes around the leaf's mean.
    rough: bool,
    group: Group,
    nearest: Nearest,
    query: Query,
    tile: Tile,
}

impl Leaf {
    /// Finds the `k` nearest of each of at least two elements among them. Returns whether the distances of most are resolved.
    pub(crate) fn compare(
        &mut self,
        space: Space<'_>,
        elements: impl Iterator<Item = u32>,
        k: usize,
        control: &Control,
    ) -> Result<bool, BuildError> {
        self.elements.clear();
        self.elements.extend(elements);
        self.rough = false;
        self.resolved.clear();
        let k = k.min(self.elements.len() - 1);
        let Some(products) = space.measure.products else {
            self.one_by_one(space, k);
            return Ok(true);
        };
        if let Some(codes) = space.codes {
            self.group.pack_codes(codes, &self.elements);
            self.by_products(products, k, control)?;
            let Self { elements, nearest, resolved, .. } = self;
            find_resolved(space, elements, nearest, |at, squared| codes.resolves(elements[at], squared), resolved);
            if self.most_resolved() && represent_pair(space, codes, &self.elements, &self.nearest) {
                return Ok(true);
            }
        }
        let center = group::center(space, products, &self.elements);
        self.group.pack_roughly(space, products, &self.elements, center.as_deref());
        self.by_products(products, k, control)?;
        self.rough = products.are_rough();
        let Self { elements, nearest, group, resolved, .. } = self;
        find_resolved(space, elements, nearest, |at, squared| group.resolves(at, squared), resolved);
        Ok(self.most_resolved())
    }

    /// What was found for the element at a position, nearest first.
    pub(crate) fn found(&self, space: Space<'_>, at: usize) -> impl Iterator<Item = Candidate> {
        self.nearest.of(at).map(move |near| {
            let other = self.elements[near.element() as usize];
            let rough = self.rough || self.resolved.get(at) == Some(&false);
            let distance = if rough { space.distance(self.elements[at], other) } else { near.distance() };
            Candidate::new(distance, other)
        })
    }

    /// The positions of elements whose distances are below the quantisation error.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = usize> {
        self.resolved.iter().enumerate().filter(|&(_, resolved)| !resolved).map(|(at, _)| at)
    }

    fn most_resolved(&self) -> bool {
        self.unresolved().count() * 4 <= self.elements.len()
    }

    /// Every pair once, for metrics that products do not give.
    fn one_by_one(&mut self, space: Space<'_>, k: usize) {
        let Self { elements, nearest, query, .. } = self;
        nearest.reset(elements.len(), elements.len(), k);
        for (a, &element) in elements.iter().enumerate() {
            space.ask(query, element);
            for (b, &other) in elements.iter().enumerate().skip(a + 1) {
                let distance = space.distance_of(query, other);
                nearest.offer(a, distance, b as u32);
                nearest.offer(b, distance, a as u32);
            }
        }
    }

    /// Every pair once: the tiles on and above the diagonal. Those next to it first: there most of the nearest are.
    fn by_products(&mut self, products: Products, k: usize, control: &Control) -> Result<(), BuildError> {
        self.nearest.reset(self.elements.len(), self.group.padded(), k);
        let blocks = self.group.blocks();
        let near = |row_block: usize| (row_block / 2 + BAND).min(blocks / 2);
        for row_block in 0..blocks {
            self.row_of_tiles(products, row_block, row_block / 2..near(row_block));
        }
        for row_block in 0..blocks {
            control.check()?;
            self.row_of_tiles(products, row_block, near(row_block)..blocks / 2);
        }
        Ok(())
    }

    fn row_of_tiles(&mut self, products: Products, row_block: usize, col_pairs: std::ops::Range<usize>) {
        let Self { group, nearest, tile, .. } = self;
        let first_row = row_block * ROWS;
        for col_pair in col_pairs {
            let first_col = col_pair * COLS;
            let limits = (nearest.limits(first_row), nearest.limits(first_col));
            group.tile(row_block, group, col_pair, products, limits, tile);
            nearest.offer_pairs(tile, first_row, first_col);
        }
    }
}

/// For each element, whether the distance to the last of its list is resolved; `resolves` gets its square.
fn find_resolved(
    space: Space<'_>,
    elements: &[u32],
    nearest: &Nearest,
    resolves: impl Fn(usize, f32) -> bool,
    resolved: &mut Vec<bool>,
) {
    resolved.clear();
    resolved.extend((0..elements.len()).map(|at| {
        let Some(last) = nearest.of(at).last() else { return true };
        resolves(at, space.squared(elements[at], elements[last.element() as usize], last.distance()))
    }));
}

/// Whether principal components, if codes are of them, represent the distances to the nearest.
fn represent_pair(space: Space<'_>, codes: &Codes, elements: &[u32], nearest: &Nearest) -> bool {
    // Values are read for it, and may have to come from a file.
    const SAMPLE: usize = 8;
    let share = |at: usize| {
        let other = elements[nearest.of(at).next()?.element() as usize];
        Some(codes.represent_pair(space, elements[at], other))
    };
    let off = (0..elements.len()).step_by(elements.len().div_ceil(SAMPLE)).filter_map(share).filter(|share| !share);
    off.count() * 4 <= SAMPLE
}
