//! Tiles of int8 codes: exact sums of products of codes, then the same as with f32.

use super::codes::{CodeBlock, GROUP};
use super::{BLOCK, COLS, ROWS, Tile, TileInput};
use crate::Level;

/// Computes a tile from a block of rows and two blocks of columns of the same number of dimensions. The products are those of
/// what the codes stand for.
pub type CodeKernel = fn(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], input: &TileInput<'_>, tile: &mut Tile);

/// The kernel for codes on this processor, where it is several times faster than that for f32; else none.
#[must_use]
pub fn code_kernel() -> Option<CodeKernel> {
    let level = Level::detect();
    matches!(level, Level::Avx512 | Level::NeonDot).then(|| code_kernel_at(level))
}

pub(crate) fn code_kernel_at(level: Level) -> CodeKernel {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => super::x64_codes::avx512(),
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => super::neon_codes::dot(),
        _ => portable,
    }
}

fn portable(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], input: &TileInput<'_>, tile: &mut Tile) {
    assert!(cols.iter().all(|block| block.len() >= rows.len()));
    let mut products = [[0i32; COLS]; ROWS];
    for ((row, left), right) in rows.groups().zip(cols[0].groups()).zip(cols[1].groups()) {
        for (a, products) in row.as_chunks::<GROUP>().0.iter().zip(&mut products) {
            let cols = left.as_chunks::<GROUP>().0.iter().chain(right.as_chunks::<GROUP>().0);
            for (b, product) in cols.zip(products) {
                *product += (0..GROUP).map(|dim| i32::from(a[dim]) * i32::from(b[dim])).sum::<i32>();
            }
        }
    }
    for (row, products) in products.iter().enumerate() {
        tile.hits[row] = finish(row, products, rows, cols, input, &mut tile.distances[row]);
    }
}

/// Distances of a row from its products, and the bits of those that are worth a look.
#[inline(always)]
pub(super) fn finish(
    row: usize,
    products: &[i32; COLS],
    rows: CodeBlock<'_>,
    cols: [CodeBlock<'_>; 2],
    input: &TileInput<'_>,
    distances: &mut [f32; COLS],
) -> u32 {
    let factor = input.scale * rows.factors[row];
    let mut hits = 0;
    for (col, (&product, distance)) in products.iter().zip(distances).enumerate() {
        let product = product as f32 * cols[col / BLOCK].factors[col % BLOCK];
        *distance = factor * product + input.col_terms[col] + input.row_terms[row];
        let hit = *distance < input.row_limits[row] || *distance < input.col_limits[col];
        hits |= u32::from(hit) << col;
    }
    hits
}
