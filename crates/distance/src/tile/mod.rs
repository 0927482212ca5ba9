//! Distances of many pairs at once, by products of blocks of vectors.
//!
//! A pair of vectors that are compared once costs as much memory traffic as arithmetic. In a block of [`ROWS`] x [`COLS`] pairs
//! every element that was loaded is used many times. The distances are `scale * product + term of a + term of b`: approximate
//! where terms cancel, so what is kept should be measured again by a [`crate::Kernel`].

mod panel;
#[cfg(target_arch = "x86_64")]
mod x64;

use crate::Level;
pub use panel::{BLOCK, Panel};

/// Vectors of one side of a tile: one block.
pub const ROWS: usize = BLOCK;
/// Vectors of the other side: two blocks.
pub const COLS: usize = 2 * BLOCK;

/// What a product becomes, and what is worth a look.
pub struct TileInput<'a> {
    /// Factor of the products.
    pub scale: f32,
    /// Added to all distances of a row.
    pub row_terms: &'a [f32; ROWS],
    /// Added to all distances of a column.
    pub col_terms: &'a [f32; COLS],
    /// A distance below this is worth a look, by row.
    pub row_limits: &'a [f32; ROWS],
    /// Or below this, by column.
    pub col_limits: &'a [f32; COLS],
}

/// The distances of a tile.
pub struct Tile {
    /// Distances of the rows that have a hit; others are left as they were.
    pub distances: [[f32; COLS]; ROWS],
    /// For each row, a bit for each column that is worth a look.
    pub hits: [u32; ROWS],
}

impl Tile {
    /// A tile without hits.
    #[must_use]
    pub fn new() -> Self {
        Self { distances: [[0.0; COLS]; ROWS], hits: [0; ROWS] }
    }

    /// Visits every hit: row, column and distance.
    #[inline]
    pub fn for_each_hit(&self, mut visit: impl FnMut(usize, usize, f32)) {
        for row in 0..ROWS {
            let mut hits = self.hits[row];
            while hits != 0 {
                let col = hits.trailing_zeros() as usize;
                hits &= hits - 1;
                visit(row, col, self.distances[row][col]);
            }
        }
    }
}

impl Default for Tile {
    fn default() -> Self {
        Self::new()
    }
}

/// Computes a tile from a block of rows and two blocks of columns of the same number of dimensions.
pub type TileKernel = fn(rows: &[f32], cols: [&[f32]; 2], input: &TileInput<'_>, tile: &mut Tile);

/// The tile kernel for this processor.
#[must_use]
pub fn tile_kernel() -> TileKernel {
    tile_kernel_at(Level::detect())
}

fn tile_kernel_at(level: Level) -> TileKernel {
    #[cfg(target_arch = "x86_64")]
    match level {
        Level::Avx512 => return x64::avx512(),
        Level::Avx2 => return x64::avx2(),
        Level::Portable => {}
    }
    let _ = level;
    portable
}

fn portable(rows: &[f32], cols: [&[f32]; 2], input: &TileInput<'_>, tile: &mut Tile) {
    let mut products = [[0f32; COLS]; ROWS];
    let (rows, _) = rows.as_chunks::<BLOCK>();
    let [(left, _), (right, _)] = cols.map(|block| block.as_chunks::<BLOCK>());
    for ((row, left), right) in rows.iter().zip(left).zip(right) {
        for (a, products) in row.iter().zip(&mut products) {
            for lane in 0..BLOCK {
                products[lane] += a * left[lane];
                products[BLOCK + lane] += a * right[lane];
            }
        }
    }
    for (row, products) in products.iter().enumerate() {
        let mut hits = 0;
        for (col, product) in products.iter().enumerate() {
            let distance = input.scale * product + input.col_terms[col] + input.row_terms[row];
            let hit = distance < input.row_limits[row] || distance < input.col_limits[col];
            tile.distances[row][col] = distance;
            hits |= u32::from(hit) << col;
        }
        tile.hits[row] = hits;
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, COLS, Panel, ROWS, Tile, TileInput, tile_kernel_at};
    use crate::{Elements, Level};

    /// Sums of f32 in another order, for values around 1.
    const EPSILON: f64 = 1e-5;

    #[test]
    fn every_level_equals_the_reference_on_every_length() {
        let mut state = 9u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
        };
        for dims in (1..70).chain([127, 128, 384, 1001]) {
            let vectors: Vec<Vec<f32>> = (0..ROWS + COLS).map(|_| (0..dims).map(|_| next()).collect()).collect();
            let bytes: Vec<Vec<u8>> =
                vectors.iter().map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
            let mut panel = Panel::new();
            panel.fill(Elements::F32, dims, bytes.iter().map(Vec::as_slice), None, &[]);
            let row_terms: [f32; ROWS] = std::array::from_fn(|_| next());
            let col_terms: [f32; COLS] = std::array::from_fn(|_| next());
            let (row_limits, col_limits) = ([0.5; ROWS], std::array::from_fn(|_| next()));
            let input = TileInput {
                scale: -2.0,
                row_terms: &row_terms,
                col_terms: &col_terms,
                row_limits: &row_limits,
                col_limits: &col_limits,
            };
            for level in Level::available() {
                let mut tile = Tile::new();
                tile_kernel_at(level)(panel.block(0), [panel.block(1), panel.block(2)], &input, &mut tile);
                for row in 0..ROWS {
                    for col in 0..COLS {
                        let product: f64 = vectors[row]
                            .iter()
                            .zip(&vectors[BLOCK + col])
                            .map(|(&a, &b)| f64::from(a) * f64::from(b))
                            .sum();
                        let expected = -2.0 * product + f64::from(row_terms[row]) + f64::from(col_terms[col]);
                        let limit = f64::from(row_limits[row].max(col_limits[col]));
                        let hit = tile.hits[row] >> col & 1 == 1;
                        let slack = EPSILON * dims as f64;
                        if (expected - limit).abs() > slack {
                            assert_eq!(hit, expected < limit, "{level:?} {dims} dims ({row}, {col})");
                        }
                        if tile.hits[row] != 0 {
                            let found = f64::from(tile.distances[row][col]);
                            assert!((found - expected).abs() <= slack, "{level:?} {dims} dims: {found}, {expected}");
                        }
                    }
                }
            }
        }
    }
}
