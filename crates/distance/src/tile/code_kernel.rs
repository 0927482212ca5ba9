//! Tiles of int8 codes: exact integer products, then distances and hits as with f32.

use super::codes::{CodeBlock, CodePanel, GROUP};
use super::{BLOCK, ROWS, Tile, TileInput};
use crate::Level;

/// Computes a tile from a block of rows and two blocks of columns of the same number of dimensions, at least one. Products are
/// of decoded values: of codes, times the factors of both vectors.
pub type CodeKernel = fn(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], input: &TileInput<'_>, tile: &mut Tile);

/// Computes the distances of all pairs of a panel: `scale * product + term of a + term of b`. `terms` has one entry for each
/// place of the panel's blocks, padding included, and a row of `distances` has as many. Entries below the diagonal, and those
/// of padding, are undefined.
///
/// # Panics
/// If `distances` has no row for each vector of the blocks that have vectors.
pub type AllPairs = fn(panel: &CodePanel, scale: f32, terms: &[f32], distances: &mut [f32]);

/// The inner product of the codes of two vectors of the same number of dimensions; bytes in two's complement.
pub type CodeProduct = fn(a: &[u8], b: &[u8]) -> i32;

/// The kernels of a level for codes.
#[derive(Clone, Copy)]
pub struct CodeKernels {
    /// Distances between two groups of vectors, with hits.
    pub tile: CodeKernel,
    /// Distances of all pairs of a small group.
    pub all_pairs: AllPairs,
    /// The product of two vectors.
    pub product: CodeProduct,
}

/// The kernels for codes on this processor, if they are faster than f32; else `None`.
#[must_use]
pub fn code_kernels() -> Option<CodeKernels> {
    let level = Level::current();
    let is_fast = !matches!(level, Level::Portable | Level::Neon);
    is_fast.then(|| code_kernels_at(level))
}

pub(crate) fn code_kernels_at(level: Level) -> CodeKernels {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Amx => super::x64_amx::amx(),
        #[cfg(target_arch = "x86_64")]
        Level::Vnni => super::x64_codes::vnni(),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => super::x64_codes_256::avx2(),
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => super::neon_codes::dot(),
        _ => CodeKernels {
            tile: |rows, cols, input, tile| tile_of(multiply, rows, cols, input, tile),
            all_pairs: |panel, scale, terms, distances| all_pairs_of(multiply, panel, scale, terms, distances),
            product,
        },
    }
}

/// Integer products of a block of rows and a block of columns.
fn multiply(rows: CodeBlock<'_>, cols: CodeBlock<'_>) -> [[i32; BLOCK]; ROWS] {
    assert!(cols.len() >= rows.len());
    let mut products = [[0; BLOCK]; ROWS];
    for (row, col) in rows.groups().zip(cols.groups()) {
        for (a, products) in row.as_chunks::<GROUP>().0.iter().zip(&mut products) {
            for (b, product) in col.as_chunks::<GROUP>().0.iter().zip(products) {
                *product += (0..GROUP).map(|dim| i32::from(a[dim]) * i32::from(b[dim])).sum::<i32>();
            }
        }
    }
    products
}

pub(super) fn product(a: &[u8], b: &[u8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(a.cast_signed()) * i32::from(b.cast_signed())).sum()
}

/// Computes a tile, given how to multiply two blocks.
#[inline(always)]
pub(super) fn tile_of(
    multiply: impl Fn(CodeBlock<'_>, CodeBlock<'_>) -> [[i32; BLOCK]; ROWS],
    rows: CodeBlock<'_>,
    cols: [CodeBlock<'_>; 2],
    input: &TileInput<'_>,
    tile: &mut Tile,
) {
    let [left, right] = cols.map(|cols| multiply(rows, cols));
    for row in 0..ROWS {
        let factor = input.scale * rows.factors[row];
        tile.set_row(row, input, |col| {
            let (side, at) = (col / BLOCK, col % BLOCK);
            let product = [&left, &right][side][row][at] as f32 * cols[side].factors[at];
            factor * product + input.col_terms[col] + input.row_terms[row]
        });
    }
}

/// Computes the distances of all pairs, given how to multiply two blocks.
#[inline(always)]
pub(super) fn all_pairs_of(
    multiply: impl Fn(CodeBlock<'_>, CodeBlock<'_>) -> [[i32; BLOCK]; ROWS],
    panel: &CodePanel,
    scale: f32,
    terms: &[f32],
    distances: &mut [f32],
) {
    let blocks = panel.rows().div_ceil(BLOCK);
    for row_block in 0..blocks {
        let rows = panel.block(row_block);
        for col_block in row_block..blocks {
            let cols = panel.block(col_block);
            let terms_of = |block: usize| &terms[block * BLOCK..][..BLOCK];
            for (row, products) in multiply(rows, cols).iter().enumerate() {
                let (factor, row_term) = (scale * rows.factors[row], terms_of(row_block)[row]);
                let start = (row_block * BLOCK + row) * terms.len() + col_block * BLOCK;
                let columns = distances[start..][..BLOCK]
                    .iter_mut()
                    .zip(products)
                    .zip(cols.factors.iter().zip(terms_of(col_block)));
                for ((distance, &product), (col_factor, term)) in columns {
                    *distance = factor * (product as f32 * col_factor) + term + row_term;
                }
            }
        }
    }
}
