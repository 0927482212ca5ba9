//! Compares all pairs of a leaf.

use distance::{COLS, Candidate, Nearest, ROWS, Tile};

use crate::space::representation::most;
use crate::space::{Group, Inverted, Representation, Space, Tiles};
use crate::{BuildError, Control};

/// Pairs of blocks next to the diagonal, which are compared first.
const BAND: usize = 2;

/// The nearest elements within a leaf. A thread reuses the memory from leaf to leaf.
#[derive(Default)]
pub(crate) struct Leaf {
    elements: Vec<u32>,
    /// For each element, whether the distance of its farthest kept neighbor is above the quantisation error.
    resolved: Vec<bool>,
    /// Whether distances by tiles are too imprecise to be compared with those of other leaves ([`Representation::is_rough`]).
    rough: bool,
    group: Group,
    inverted: Inverted,
    nearest: Nearest,
    tile: Tile,
}

impl Leaf {
    /// Finds the `k` nearest neighbors of each element within the leaf, which has at least two elements. Returns whether the distances of
    /// most elements are resolved.
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
        let Some(tiles) = space.measure.tiles else {
            self.by_inverted_lists(space, k);
            return Ok(true);
        };
        let elements = std::mem::take(&mut self.elements);
        let mut resolved = false;
        for representation in Representation::of(space, tiles, &elements) {
            representation.pack(space, tiles, &elements, &mut self.group);
            self.by_tiles(tiles, elements.len(), k, control)?;
            self.rough = representation.is_rough(tiles);
            self.find_resolved(space, &elements);
            resolved = most(self.resolved.iter().copied());
            if resolved && representation.represents_most(space, self.near_pairs(&elements)) {
                break;
            }
        }
        if tiles.codes.is_some() {
            // A leaf of codes may have more points than the memory estimate has room for as f32: they stay no longer than needed.
            self.group.forget_values();
        }
        self.elements = elements;
        Ok(resolved)
    }

    /// The candidates found for the element at a position, nearest first.
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

    /// Compares every pair of sparse values once, by the dimensions that both have.
    fn by_inverted_lists(&mut self, space: Space<'_>, k: usize) {
        let Self { elements, nearest, inverted, .. } = self;
        nearest.reset(elements.len(), elements.len(), k);
        inverted.fill(space, elements);
        inverted.all_pairs(|a, b, distance| {
            let distance = untied(distance, a as u32, b as u32);
            nearest.offer(a, distance, b as u32);
            nearest.offer(b, distance, a as u32);
        });
    }

    /// Compares every pair once, by the tiles on and above the diagonal. Tiles next to the diagonal come first: they have most near pairs.
    fn by_tiles(&mut self, tiles: Tiles, count: usize, k: usize, control: &Control) -> Result<(), BuildError> {
        self.nearest.reset(count, self.group.padded(), k);
        let blocks = self.group.blocks();
        let near = |row_block: usize| (row_block / 2 + BAND).min(blocks / 2);
        for row_block in 0..blocks {
            self.row_of_tiles(tiles, row_block, row_block / 2..near(row_block));
        }
        for row_block in 0..blocks {
            control.check()?;
            self.row_of_tiles(tiles, row_block, near(row_block)..blocks / 2);
        }
        Ok(())
    }

    fn row_of_tiles(&mut self, tiles: Tiles, row_block: usize, col_pairs: std::ops::Range<usize>) {
        let Self { group, nearest, tile, .. } = self;
        let first_row = row_block * ROWS;
        for col_pair in col_pairs {
            let first_col = col_pair * COLS;
            let limits = (nearest.limits(first_row), nearest.limits(first_col));
            group.tile(row_block, group, col_pair, tiles, limits, tile);
            nearest.offer_pairs(tile, first_row, first_col);
        }
    }

    /// Determines for each element whether the distance of its farthest kept neighbor is above the quantisation error.
    fn find_resolved(&mut self, space: Space<'_>, elements: &[u32]) {
        let Self { group, nearest, resolved, .. } = self;
        resolved.clear();
        resolved.extend((0..elements.len()).map(|at| {
            let Some(last) = nearest.of(at).last() else { return true };
            group.resolves(at, space.squared(elements[at], elements[last.element() as usize], last.distance()))
        }));
    }

    /// A sample of elements with their nearest neighbors: few, since values are read, possibly from the spool file.
    fn near_pairs(&self, elements: &[u32]) -> impl Iterator<Item = (u32, u32)> {
        const SAMPLE: usize = 8;
        let pair = |at: usize| Some((elements[at], elements[self.nearest.of(at).next()?.element() as usize]));
        (0..elements.len()).step_by(elements.len().div_ceil(SAMPLE)).filter_map(pair)
    }
}

/// Breaks ties: replaces the last three bits of a distance by pseudo-random ones. Values that share no dimension are often equally far from
/// each other. Without this, all would choose the same few of them, and no link would lead to the rest.
fn untied(distance: f32, a: u32, b: u32) -> f32 {
    let mixed = a.wrapping_mul(0x9E37_79B9) ^ b.wrapping_mul(0x85EB_CA6B);
    let noise = mixed.wrapping_mul(0xC2B2_AE35) >> 29;
    if distance.is_finite() { f32::from_bits(distance.to_bits() ^ noise) } else { distance }
}

#[cfg(test)]
mod tests {
    use distance::code_kernels;

    use super::{Leaf, untied};
    use crate::Control;
    use crate::testing::{cube, euclidean, store};

    #[test]
    fn values_packed_as_f32_are_freed() {
        if code_kernels().is_none() {
            return;
        }
        // Two groups, whose points are nearer to each other than the steps of codes for both.
        let mut points = cube::<8>(200, 1);
        for (at, point) in points.iter_mut().enumerate() {
            point.iter_mut().for_each(|x| *x = *x * 1e-4 + (at % 2) as f32);
        }
        let store = store(&points);
        let mut leaf = Leaf::default();
        leaf.compare(euclidean::<8>(&store), 0..200, 5, &Control::default()).unwrap();
        assert_eq!(leaf.group.blocks(), 0, "values as f32");
        leaf.compare(euclidean::<8>(&store), (0..100).map(|at| 2 * at), 5, &Control::default()).unwrap();
        assert_ne!(leaf.group.blocks(), 0, "codes");
    }

    #[test]
    fn equal_distances_differ_a_little() {
        let distances: std::collections::BTreeSet<u32> = (0..50).map(|at| untied(2.0, 7, at).to_bits()).collect();
        assert!(distances.len() > 4);
        assert!(distances.iter().all(|&bits| (f32::from_bits(bits) - 2.0).abs() < 1e-5));
        assert_eq!(untied(f32::INFINITY, 1, 2), f32::INFINITY);
    }
}
