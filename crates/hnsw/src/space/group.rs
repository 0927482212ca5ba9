//! A group of points packed for tiles, with the terms that turn the sums of tiles into distances.

use distance::{BLOCK, BitPanel, COLS, CodePanel, Elements, Metric, Nearest, Panel, ROWS, Tile, TileInput};

use super::codes::{self, Codes};
use super::{Space, TileOf, Tiles};

/// Distances below this many units in the last place of a vector's squared length are mostly rounding error.
const LOST: f32 = 64.0;
/// Points of another group that are compared at a time: together with a block of rows they fit into a core's cache.
const AT_ONCE: usize = 512;

/// Which panel has the points of a group.
#[derive(Clone, Copy, Default, PartialEq)]
enum Packed {
    #[default]
    Values,
    Codes,
    Bits,
}

#[derive(Default)]
pub(crate) struct Group {
    panel: Panel,
    codes: CodePanel,
    bits: BitPanel,
    packed: Packed,
    /// Codes per point: dimensions or principal components.
    width: usize,
    /// A term for each point: its squared norm, the term of its codes, or the number of its bits that are set; 0 where tiles need none, and
    /// infinite for the padding.
    terms: Vec<f32>,
    /// Factor of the sums of tiles.
    scale: f32,
}

impl Group {
    /// Packs points, under L2 as differences from `center`, which lose less to cancellation. If `coded`, as codes: distances of tiles are
    /// approximate, and `tiles` must have kernels for codes.
    pub(crate) fn pack(&mut self, space: Space<'_>, tiles: Tiles, points: &[u32], center: Option<&[f32]>, coded: bool) {
        let vectors = points.iter().map(|&point| space.value(point));
        self.fill_values(tiles, vectors, &space.extra_coordinates(points), center, coded);
    }

    /// Packs values that may not belong to elements, such as queries.
    pub(crate) fn pack_values<'v>(
        &mut self,
        tiles: Tiles,
        values: impl ExactSizeIterator<Item = &'v [u8]>,
        center: Option<&[f32]>,
    ) {
        self.fill_values(tiles, values, &[], center, false);
    }

    fn fill_values<'v>(
        &mut self,
        tiles: Tiles,
        vectors: impl ExactSizeIterator<Item = &'v [u8]>,
        extra: &[f32],
        center: Option<&[f32]>,
        coded: bool,
    ) {
        let (elements, dims, count) = (tiles.elements, tiles.dims, vectors.len());
        let by_difference = tiles.metric == Metric::L2;
        let center = center.filter(|_| by_difference);
        self.packed = match elements {
            Elements::Bits => Packed::Bits,
            _ if coded => Packed::Codes,
            _ => Packed::Values,
        };
        self.width = dims + usize::from(!extra.is_empty());
        match self.packed {
            Packed::Values => self.panel.fill(elements, dims, vectors, center, extra),
            Packed::Codes => self.codes.fill(elements, dims, vectors, center, extra),
            Packed::Bits => self.bits.fill(vectors),
        }
        self.terms.clear();
        for block in 0..self.blocks() {
            self.terms.extend(match self.packed {
                Packed::Bits => self.bits.counts(block),
                _ if !by_difference => [0.0; BLOCK],
                Packed::Codes => self.codes.squared_norms(block),
                Packed::Values => self.panel.squared_norms(block),
            });
        }
        self.scale = tiles.scale();
        self.terms[count..].fill(f32::INFINITY);
    }

    /// Frees the memory of values that are packed as f32.
    pub(crate) fn forget_values(&mut self) {
        self.panel = Panel::default();
    }

    /// Packs the codes of points: distances of tiles are approximate.
    pub(crate) fn pack_codes(&mut self, codes: &Codes, points: &[u32]) {
        self.codes.fill_encoded(codes.width(), points.iter().map(|&point| codes.of(point)));
        self.packed = Packed::Codes;
        self.width = codes.width();
        self.scale = codes.scale;
        self.terms.clear();
        self.terms.extend(points.iter().map(|&point| codes.term(point)));
        self.terms.resize(self.blocks() * BLOCK, f32::INFINITY);
    }

    /// Whether tiles resolve squared distances of this size from the point at `row`.
    pub(crate) fn resolves(&self, row: usize, squared: f32) -> bool {
        match self.packed {
            Packed::Codes => codes::resolves(self.width, self.codes.block(row / BLOCK).factors[row % BLOCK], squared),
            // Without terms nothing cancels.
            Packed::Values => self.terms[row] == 0.0 || squared > self.rounding_error(row, squared),
            Packed::Bits => true,
        }
    }

    /// A bound on the rounding error of the distance by tiles to the point at `row`, from a point that is `distance` away; not for codes.
    pub(crate) fn rounding_error(&self, row: usize, distance: f32) -> f32 {
        if self.packed == Packed::Bits {
            return 0.0;
        }
        // Manhattan distances add up one term for each dimension, one after the other.
        if self.scale > 0.0 {
            return (LOST + self.width as f32) * f32::EPSILON * distance.abs();
        }
        // |a|² + |b|² - 2ab cancels if the sum is small compared with its terms.
        let largest_term = if self.terms[row] == 0.0 { distance.abs() } else { self.terms[row] };
        LOST * f32::EPSILON * largest_term
    }

    /// The number of blocks, even.
    pub(crate) fn blocks(&self) -> usize {
        match self.packed {
            Packed::Values => self.panel.blocks(),
            Packed::Codes => self.codes.blocks(),
            Packed::Bits => self.bits.blocks(),
        }
    }

    /// The number of points, rounded up to whole pairs of blocks.
    pub(crate) fn padded(&self) -> usize {
        self.terms.len()
    }

    /// The distances of a block of `ROWS` points to a pair of blocks, `COLS` points, of `others`, which are packed in the same way. A
    /// distance below the limit of its row or column is a hit.
    pub(crate) fn tile(
        &self,
        row_block: usize,
        others: &Self,
        col_pair: usize,
        tiles: Tiles,
        limits: (&[f32; ROWS], &[f32; COLS]),
        tile: &mut Tile,
    ) {
        let input = TileInput {
            scale: self.scale,
            row_terms: self.terms[row_block * ROWS..].first_chunk().expect("padded to whole tiles"),
            col_terms: others.terms[col_pair * COLS..].first_chunk().expect("padded to whole tiles"),
            row_limits: limits.0,
            col_limits: limits.1,
        };
        let cols = [2 * col_pair, 2 * col_pair + 1];
        match (tiles.codes.filter(|_| self.packed == Packed::Codes), tiles.tile) {
            (Some(kernels), _) => {
                (kernels.tile)(self.codes.block(row_block), cols.map(|col| others.codes.block(col)), &input, tile);
            }
            (None, TileOf::Vectors(kernel)) => {
                kernel(self.panel.block(row_block), cols.map(|col| others.panel.block(col)), &input, tile);
            }
            (None, TileOf::Bits(kernel)) => {
                kernel(self.bits.block(row_block), cols.map(|col| others.bits.block(col)), &input, tile);
            }
        }
    }

    /// For each of the group's `count` points, the `k` nearest of `others`, by position.
    pub(crate) fn nearest(
        &self,
        count: usize,
        others: &Self,
        tiles: Tiles,
        k: usize,
        (nearest, tile): (&mut Nearest, &mut Tile),
    ) {
        nearest.reset(count, self.padded(), k);
        let col_pairs = others.blocks() / 2;
        for first in (0..col_pairs).step_by(AT_ONCE / COLS) {
            for row_block in 0..self.blocks() {
                for col_pair in first..col_pairs.min(first + AT_ONCE / COLS) {
                    let limits = (nearest.limits(row_block * ROWS), &[f32::NEG_INFINITY; COLS]);
                    self.tile(row_block, others, col_pair, tiles, limits, tile);
                    nearest.offer_rows(tile, row_block * ROWS, col_pair * COLS);
                }
            }
        }
    }

    /// Distances between all points of the group, right of the diagonal: rows of [`Group::padded`] entries.
    pub(crate) fn all_pairs(&self, tiles: Tiles, distances: &mut Vec<f32>) {
        const EVERYTHING: (&[f32; ROWS], &[f32; COLS]) = (&[f32::INFINITY; ROWS], &[f32::INFINITY; COLS]);
        let width = self.padded();
        distances.resize(width * width, 0.0);
        if let Some(kernels) = tiles.codes.filter(|_| self.packed == Packed::Codes) {
            return (kernels.all_pairs)(&self.codes, self.scale, &self.terms, distances);
        }
        let mut tile = Tile::default();
        for row_block in 0..self.blocks() {
            for col_pair in row_block / 2..self.blocks() / 2 {
                self.tile(row_block, self, col_pair, tiles, EVERYTHING, &mut tile);
                for (row, found) in tile.distances.iter().enumerate() {
                    let start = (row_block * ROWS + row) * width + col_pair * COLS;
                    distances[start..start + COLS].copy_from_slice(found);
                }
            }
        }
    }
}

/// The mean of a sample of points; `None` unless distances are Euclidean.
pub(crate) fn center(space: Space<'_>, tiles: Tiles, points: &[u32]) -> Option<Vec<f32>> {
    const SAMPLE: usize = 64;
    if tiles.metric != Metric::L2 {
        return None;
    }
    let mut panel = Panel::default();
    let sample: Vec<_> = points.iter().step_by((points.len() / SAMPLE).max(1)).map(|&p| space.value(p)).collect();
    let count = sample.len() as f32;
    panel.fill(tiles.elements, tiles.dims, sample.into_iter(), None, &[]);
    let mut center = vec![0f32; tiles.dims];
    for block in 0..panel.blocks() {
        for (sum, lanes) in center.iter_mut().zip(panel.block(block).chunks_exact(BLOCK)) {
            *sum += lanes.iter().sum::<f32>() / count;
        }
    }
    Some(center).filter(|center| center.iter().all(|x| x.is_finite()))
}

#[cfg(test)]
mod tests {
    use distance::{Elements, Metric};

    use super::{Group, center};
    use crate::space::{Measure, Space};
    use crate::testing::{euclidean, store};

    #[test]
    fn differences_that_cancel_are_not_resolved() {
        // The square of (1000, 0) is a million, whose 64 units in the last place are 7.63.
        let store = store(&[[1000.0, 0.0], [1000.0, 2.0], [0.0, 1.0]]);
        let space = euclidean::<2>(&store);
        let tiles = space.measure.tiles.unwrap();
        let mut group = Group::default();
        group.pack(space, tiles, &[0, 1, 2], None, false);
        assert!(!group.resolves(0, 7.6) && group.resolves(0, 7.7));
        assert!(!group.resolves(2, 7.6e-6) && group.resolves(2, 7.7e-6), "a point near the origin loses less");
        group.pack(space, tiles, &[0, 1, 2], Some(&[1000.0, 1.0]), false);
        assert!(group.resolves(0, 7.7e-6), "nor does one near the center");
        // Products alone do not cancel.
        let measure = Measure::new(Elements::F32, Metric::InnerProduct, 2).unwrap();
        group.pack(Space::exact(measure, &store), measure.tiles.unwrap(), &[0, 1, 2], None, false);
        assert!(group.resolves(0, 0.0));
    }

    #[test]
    fn distances_are_the_same_around_a_center() {
        let store = store(&[[3.0, 0.0], [0.0, 4.0], [-3.0, 0.0], [0.0, -8.0]]);
        let space = euclidean::<2>(&store);
        let tiles = space.measure.tiles.unwrap();
        let all = [0, 1, 2, 3];
        assert_eq!(center(space, tiles, &all), Some(vec![0.0, -1.0]));
        let (mut group, mut distances) = (Group::default(), Vec::new());
        for center in [None, Some([0.0, -1.0])] {
            group.pack(space, tiles, &all, center.as_ref().map(|center| center.as_slice()), false);
            group.all_pairs(tiles, &mut distances);
            let row = |at: usize| &distances[at * group.padded()..][..group.padded()];
            assert_eq!(row(0)[1..4], [25.0, 36.0, 73.0]);
            assert_eq!(row(1)[2..4], [25.0, 144.0]);
            assert!(row(0)[4..].iter().all(|&distance| distance == f32::INFINITY), "the padding is infinitely far");
        }
    }
}
