//! Tiles of codes by AVX2, which multiplies 16 pairs of 16 bits and adds two neighboring products: packed codes are widened.

use std::arch::x86_64::*;

use super::code_kernel::{self, AllPairs, CodeKernel, CodeKernels};
use super::codes::{CodeBlock, CodePanel, GROUP, Line, WIDE};
use super::{BLOCK, COLS, ROWS, Tile, TileInput};
use crate::Level;

/// Vectors per register, which holds one widened group of dimensions of each.
const LANES: usize = 4;
/// Vectors per line; also sums, and distances, per register.
const SUMS: usize = BLOCK / WIDE;
/// Registers per line.
const SETS: usize = SUMS / LANES;
/// Rows whose sums are kept in registers at a time: 4 rows x 8 columns take 8 of the 16 registers, and columns 2.
const ROWS_AT_ONCE: usize = 4;
/// Bytes of a group of dimensions, widened.
const WIDE_GROUP: usize = 2 * GROUP;

pub(super) fn avx2() -> CodeKernels {
    // SAFETY: the level includes AVX2 and FMA.
    let tile: CodeKernel = |rows, cols, input, tile| unsafe { tile_256(rows, cols, input, tile) };
    // SAFETY: as above.
    let all_pairs: AllPairs = |panel, scale, terms, distances| unsafe { all_pairs_256(panel, scale, terms, distances) };
    // SAFETY: as above.
    CodeKernels { tile, all_pairs, product: |a, b| unsafe { product_256(a, b) } }
}

/// Like [`code_kernel::tile_of`], which takes twice as long here.
#[target_feature(enable = "avx2,fma")]
fn tile_256(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], input: &TileInput<'_>, tile: &mut Tile) {
    tile.hits = [0; ROWS];
    for (side, cols) in cols.into_iter().enumerate() {
        for (row, products) in multiply(rows, cols).iter().enumerate() {
            let factor = _mm256_set1_ps(input.scale * rows.factors[row]);
            let row_term = _mm256_set1_ps(input.row_terms[row]);
            let row_limit = _mm256_set1_ps(input.row_limits[row]);
            for first in (0..BLOCK).step_by(SUMS) {
                let col = side * BLOCK + first;
                debug_assert!(col + SUMS <= COLS);
                // SAFETY: products and factors have BLOCK values, of which SUMS are used from `first`; terms, limits and distances have
                // COLS values, of which SUMS are used from `col`.
                unsafe {
                    let product = _mm256_cvtepi32_ps(_mm256_loadu_si256(products.as_ptr().add(first).cast()));
                    let product = _mm256_mul_ps(product, _mm256_loadu_ps(cols.factors.as_ptr().add(first)));
                    let terms = _mm256_loadu_ps(input.col_terms.as_ptr().add(col));
                    let limits = _mm256_loadu_ps(input.col_limits.as_ptr().add(col));
                    // Rounded after each step, so that `all_pairs_of` gives the same.
                    let distance = _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(factor, product), terms), row_term);
                    let below = _mm256_or_ps(
                        _mm256_cmp_ps::<_CMP_LT_OQ>(distance, row_limit),
                        _mm256_cmp_ps::<_CMP_LT_OQ>(distance, limits),
                    );
                    tile.hits[row] |= (_mm256_movemask_ps(below) as u32) << col;
                    _mm256_storeu_ps(tile.distances[row].as_mut_ptr().add(col), distance);
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn all_pairs_256(panel: &CodePanel, scale: f32, terms: &[f32], distances: &mut [f32]) {
    code_kernel::all_pairs_of(|rows, cols| multiply(rows, cols), panel, scale, terms, distances);
}

/// Integer products of a block of rows and a block of columns.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply(rows: CodeBlock<'_>, cols: CodeBlock<'_>) -> [[i32; BLOCK]; ROWS] {
    let lines = rows.len();
    assert!(lines.is_multiple_of(WIDE) && cols.len() >= lines);
    let mut products = [[0i32; BLOCK]; ROWS];
    for (first, products) in (0..).step_by(ROWS_AT_ONCE).zip(products.chunks_exact_mut(ROWS_AT_ONCE)) {
        for half in 0..WIDE {
            // Two sums for each vector, of the first two and of the last two dimensions of its groups.
            let mut sums = [[_mm256_setzero_si256(); SETS]; ROWS_AT_ONCE];
            for line in (0..lines).step_by(WIDE) {
                // SAFETY: each block has `lines` lines of 64 aligned bytes, as asserted; a row has 8 bytes in one of two.
                let (row, cols): (_, [__m256i; SETS]) = unsafe {
                    let cols = cols.as_ptr().add((line + half) * size_of::<Line>()).cast::<__m256i>();
                    let row = rows.as_ptr().add(line * size_of::<Line>() + first * WIDE_GROUP).cast::<i64>();
                    (row, std::array::from_fn(|set| _mm256_load_si256(cols.add(set))))
                };
                for (at, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: `first + at` is below BLOCK.
                    let row = _mm256_set1_epi64x(unsafe { *row.add(at) });
                    for (sum, col) in sums.iter_mut().zip(cols) {
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(col, row));
                    }
                }
            }
            for (sums, products) in sums.iter().zip(&mut *products) {
                // Vectors 0, 1, 4, 5 and 2, 3, 6, 7: put the middle quarters in order.
                let added = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(sums[0], sums[1]));
                // SAFETY: there is room for eight values from `half * SUMS`.
                unsafe { _mm256_storeu_si256(products.as_mut_ptr().add(half * SUMS).cast(), added) };
            }
        }
    }
    products
}

/// Fills the lines of a block from its rows, which have equal lengths: transposes matrices of 4 rows x 4 groups and widens them.
///
/// # Panics
/// Without AVX2, or if the number of lines is not [`WIDE`] for each group.
pub(super) fn interleave(rows: &[&[u8]; BLOCK], lines: &mut [Line]) {
    assert!(Level::current() >= Level::Avx2);
    // SAFETY: the processor has the features, as asserted.
    unsafe { interleave_256(rows, lines) }
}

#[target_feature(enable = "avx2")]
fn interleave_256(rows: &[&[u8]; BLOCK], lines: &mut [Line]) {
    const AT_ONCE: usize = LANES * GROUP;
    let len = rows[0].len();
    assert!(rows.iter().all(|row| row.len() == len) && lines.len() == len.div_ceil(GROUP) * WIDE);
    for (at, lines) in lines.chunks_mut(LANES * WIDE).enumerate() {
        for (set, rows) in rows.as_chunks::<LANES>().0.iter().enumerate() {
            let matrix = rows.map(|row| {
                let rest = &row[at * AT_ONCE..];
                let mut padded = [0; AT_ONCE];
                let codes = rest.first_chunk().unwrap_or_else(|| {
                    padded[..rest.len()].copy_from_slice(rest);
                    &padded
                });
                // SAFETY: there are 16 bytes.
                unsafe { _mm_loadu_si128(codes.as_ptr().cast()) }
            });
            let (line, place) = (set / SETS, set % SETS);
            for (lines, column) in lines.chunks_exact_mut(WIDE).zip(transposed(matrix)) {
                let place = &mut lines[line].0[place * size_of::<__m256i>()..][..size_of::<__m256i>()];
                // SAFETY: the place has 32 bytes.
                unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), _mm256_cvtepi8_epi16(column)) };
            }
        }
    }
}

/// Transposes a matrix of 4 x 4 elements of 32 bits.
#[target_feature(enable = "avx2")]
fn transposed([a, b, c, d]: [__m128i; LANES]) -> [__m128i; LANES] {
    let (low, high) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
    let (low_2, high_2) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
    [
        _mm_unpacklo_epi64(low, high),
        _mm_unpackhi_epi64(low, high),
        _mm_unpacklo_epi64(low_2, high_2),
        _mm_unpackhi_epi64(low_2, high_2),
    ]
}

/// The product of the codes of two vectors.
#[target_feature(enable = "avx2,fma")]
fn product_256(a: &[u8], b: &[u8]) -> i32 {
    const WIDTH: usize = 32;
    let ((wide_a, rest_a), (wide_b, rest_b)) = (a.as_chunks::<WIDTH>(), b.as_chunks::<WIDTH>());
    let mut sums = [_mm256_setzero_si256(); 2];
    for (a, b) in wide_a.iter().zip(wide_b) {
        for (half, sum) in sums.iter_mut().enumerate() {
            // SAFETY: 16 bytes of 32, from the start or the middle.
            let [a, b] = [a, b].map(|codes| unsafe {
                _mm256_cvtepi8_epi16(_mm_loadu_si128(codes.as_ptr().add(half * WIDTH / 2).cast()))
            });
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(a, b));
        }
    }
    let mut lanes = [0i32; SUMS];
    // SAFETY: there is room for eight values.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), _mm256_add_epi32(sums[0], sums[1])) };
    lanes.into_iter().sum::<i32>() + code_kernel::product(rest_a, rest_b)
}
