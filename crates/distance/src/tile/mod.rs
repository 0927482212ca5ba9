//! Distances of many pairs at once, by products or differences of blocks of vectors.
//!
//! For single pairs, loading the vectors takes as long as the arithmetic. In a block of [`ROWS`] x [`COLS`] pairs every
//! loaded element is used many times. A distance of vectors is `scale * sum + term of a + term of b`, where the sum is
//! their inner product or Manhattan distance. It is inexact where terms cancel: measure kept pairs again by a
//! [`crate::Kernel`]. Distances of bit strings, from the number of bits set in both, are exact.

mod ahead;
mod bits;
mod code_kernel;
mod codes;
mod nearest;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_codes;
mod panel;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x64;
#[cfg(target_arch = "x86_64")]
mod x64_amx;
#[cfg(target_arch = "x86_64")]
mod x64_codes;
#[cfg(target_arch = "x86_64")]
mod x64_codes_256;
#[cfg(target_arch = "x86_64")]
mod x64_nearest;

use crate::Level;
pub use bits::{BitKernel, BitLine, BitPanel, bit_kernel};
pub use code_kernel::{AllPairs, CodeKernel, CodeKernels, CodeProduct, code_kernels};
pub use codes::{CodeBlock, CodeNote, CodePanel, encode};
pub use nearest::Nearest;
pub use panel::{BLOCK, Panel};

/// Rows of a tile: one block of vectors.
pub const ROWS: usize = BLOCK;
/// Columns of a tile: two blocks of vectors.
pub const COLS: usize = 2 * BLOCK;

/// How sums become distances (of bit strings: see [`BitKernel`]), and which distances are hits: those below the limit of their row or
/// column.
pub struct TileInput<'a> {
    /// Factor of all sums: -2 for squared distances, 1 for Manhattan distances.
    pub scale: f32,
    /// Added to all distances of a row.
    pub row_terms: &'a [f32; ROWS],
    /// Added to all distances of a column.
    pub col_terms: &'a [f32; COLS],
    /// By row: a distance below this is a hit.
    pub row_limits: &'a [f32; ROWS],
    /// By column: a distance below this is a hit.
    pub col_limits: &'a [f32; COLS],
}

/// The distances of a tile; by default it has no hits.
#[derive(Default)]
pub struct Tile {
    /// Distances of the rows that have a hit; other rows may hold old ones.
    pub distances: [[f32; COLS]; ROWS],
    /// For each row, a bit mask of the columns that are hits.
    pub hits: [u32; ROWS],
}

impl Tile {
    /// Stores the distance of a row from each column, and marks the hits.
    #[inline(always)]
    fn set_row(&mut self, row: usize, input: &TileInput<'_>, distance: impl Fn(usize) -> f32) {
        let (mut hits, limit) = (0, input.row_limits[row]);
        for (col, place) in self.distances[row].iter_mut().enumerate() {
            *place = distance(col);
            hits |= u32::from(*place < limit || *place < input.col_limits[col]) << col;
        }
        self.hits[row] = hits;
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

/// Computes a tile from a block of rows and two blocks of columns of the same number of dimensions, as [`Panel::block`] has them.
pub type TileKernel = fn(rows: &[f32], cols: [&[f32]; 2], input: &TileInput<'_>, tile: &mut Tile);

/// The tile kernel for products on this processor.
#[must_use]
pub fn tile_kernel() -> TileKernel {
    tile_kernel_at::<false>(Level::current())
}

/// The tile kernel for Manhattan distances on this processor.
#[must_use]
pub fn difference_kernel() -> TileKernel {
    tile_kernel_at::<true>(Level::current())
}

/// A tile adds up absolute differences, or else products.
fn tile_kernel_at<const DIFFERENCES: bool>(level: Level) -> TileKernel {
    #[cfg(target_arch = "x86_64")]
    match level {
        Level::Avx512 | Level::Vnni | Level::Amx => return x64::avx512::<DIFFERENCES>(),
        Level::Avx2 => return x64::avx2::<DIFFERENCES>(),
        _ => {}
    }
    #[cfg(target_arch = "aarch64")]
    if level != Level::Portable {
        return neon::neon::<DIFFERENCES>();
    }
    let _ = level;
    portable::<DIFFERENCES>
}

fn portable<const DIFFERENCES: bool>(rows: &[f32], cols: [&[f32]; 2], input: &TileInput<'_>, tile: &mut Tile) {
    let mut sums = [[0f32; COLS]; ROWS];
    let (rows, _) = rows.as_chunks::<BLOCK>();
    let [(left, _), (right, _)] = cols.map(|block| block.as_chunks::<BLOCK>());
    let term = |a: f32, b: f32| if DIFFERENCES { (a - b).abs() } else { a * b };
    for ((row, left), right) in rows.iter().zip(left).zip(right) {
        for (&a, sums) in row.iter().zip(&mut sums) {
            for lane in 0..BLOCK {
                sums[lane] += term(a, left[lane]);
                sums[BLOCK + lane] += term(a, right[lane]);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        tile.set_row(row, input, |col| input.scale * sums[col] + input.col_terms[col] + input.row_terms[row]);
    }
}
