//! Tiles by intrinsics: the compiler alone does not keep this many sums in registers.

use std::arch::x86_64::*;

use super::{BLOCK, COLS, ROWS, Tile, TileInput, TileKernel};

/// Rows whose sums are kept in registers at a time: 8 rows x 32 columns take 16 of the 32 registers of AVX-512.
const ROWS_512: usize = 8;
/// The same for AVX2: 4 rows x 16 columns take 8 of the 16 registers.
const ROWS_256: usize = 4;

pub(super) fn avx512<const DIFFERENCES: bool>() -> TileKernel {
    // SAFETY: the level includes AVX-512.
    |rows, cols, input, tile| unsafe { tile_512::<DIFFERENCES>(rows, cols, input, tile) }
}

pub(super) fn avx2<const DIFFERENCES: bool>() -> TileKernel {
    // SAFETY: the level includes AVX2 and FMA.
    |rows, cols, input, tile| unsafe { tile_256::<DIFFERENCES>(rows, cols, input, tile) }
}

#[target_feature(enable = "avx512f")]
fn tile_512<const DIFFERENCES: bool>(rows: &[f32], cols: [&[f32]; 2], input: &TileInput<'_>, tile: &mut Tile) {
    let dims = rows.len() / BLOCK;
    assert!(cols.iter().all(|block| block.len() >= dims * BLOCK));
    for first in (0..ROWS).step_by(ROWS_512) {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS_512];
        for dim in 0..dims {
            // SAFETY: each block has BLOCK values for each of `dims` dimensions, as asserted.
            let (left, right, row) = unsafe {
                (
                    _mm512_loadu_ps(cols[0].as_ptr().add(dim * BLOCK)),
                    _mm512_loadu_ps(cols[1].as_ptr().add(dim * BLOCK)),
                    rows.as_ptr().add(dim * BLOCK + first),
                )
            };
            for (at, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `first + at` is below BLOCK.
                let a = _mm512_set1_ps(unsafe { *row.add(at) });
                for (sum, b) in sums.iter_mut().zip([left, right]) {
                    *sum = match DIFFERENCES {
                        false => _mm512_fmadd_ps(a, b, *sum),
                        true => _mm512_add_ps(*sum, _mm512_abs_ps(_mm512_sub_ps(a, b))),
                    };
                }
            }
        }
        let scale = _mm512_set1_ps(input.scale);
        for (at, sums) in sums.into_iter().enumerate() {
            finish_row(first + at, scale, sums, input, tile);
        }
    }
}

/// Turns the sums of a row into distances, by a factor and the terms, and marks the hits.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn finish_row(row: usize, factor: __m512, sums: [__m512; 2], input: &TileInput<'_>, tile: &mut Tile) {
    let row_term = _mm512_set1_ps(input.row_terms[row]);
    let row_limit = _mm512_set1_ps(input.row_limits[row]);
    let mut hits = 0;
    for (half, sum) in sums.into_iter().enumerate() {
        // SAFETY: terms, limits and distances have COLS values, of which BLOCK are used from each half's start.
        unsafe {
            let terms = _mm512_loadu_ps(input.col_terms.as_ptr().add(half * BLOCK));
            let limits = _mm512_loadu_ps(input.col_limits.as_ptr().add(half * BLOCK));
            let distance = _mm512_add_ps(_mm512_fmadd_ps(sum, factor, terms), row_term);
            let below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(distance, row_limit)
                | _mm512_cmp_ps_mask::<_CMP_LT_OQ>(distance, limits);
            hits |= u32::from(below) << (half * BLOCK);
            _mm512_storeu_ps(tile.distances[row].as_mut_ptr().add(half * BLOCK), distance);
        }
    }
    tile.hits[row] = hits;
}

#[target_feature(enable = "avx2,fma")]
fn tile_256<const DIFFERENCES: bool>(rows: &[f32], cols: [&[f32]; 2], input: &TileInput<'_>, tile: &mut Tile) {
    const LANES: usize = 8;
    let dims = rows.len() / BLOCK;
    assert!(cols.iter().all(|block| block.len() >= dims * BLOCK));
    tile.hits = [0; ROWS];
    let sign = _mm256_set1_ps(-0.0);
    for first in (0..ROWS).step_by(ROWS_256) {
        for (side, cols) in cols.iter().enumerate() {
            let mut sums = [[_mm256_setzero_ps(); 2]; ROWS_256];
            for dim in 0..dims {
                // SAFETY: each block has BLOCK values for each of `dims` dimensions, as asserted.
                let (left, right, row) = unsafe {
                    (
                        _mm256_loadu_ps(cols.as_ptr().add(dim * BLOCK)),
                        _mm256_loadu_ps(cols.as_ptr().add(dim * BLOCK + LANES)),
                        rows.as_ptr().add(dim * BLOCK + first),
                    )
                };
                for (at, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: `first + at` is below BLOCK.
                    let a = _mm256_set1_ps(unsafe { *row.add(at) });
                    for (sum, b) in sums.iter_mut().zip([left, right]) {
                        *sum = match DIFFERENCES {
                            false => _mm256_fmadd_ps(a, b, *sum),
                            true => _mm256_add_ps(*sum, _mm256_andnot_ps(sign, _mm256_sub_ps(a, b))),
                        };
                    }
                }
            }
            let scale = _mm256_set1_ps(input.scale);
            for (at, sums) in sums.iter().enumerate() {
                let row = first + at;
                let row_term = _mm256_set1_ps(input.row_terms[row]);
                let row_limit = _mm256_set1_ps(input.row_limits[row]);
                for (half, sum) in sums.iter().enumerate() {
                    let col = side * BLOCK + half * LANES;
                    debug_assert!(col + LANES <= COLS);
                    // SAFETY: terms, limits and distances have COLS values, of which LANES are used from `col`.
                    unsafe {
                        let terms = _mm256_loadu_ps(input.col_terms.as_ptr().add(col));
                        let limits = _mm256_loadu_ps(input.col_limits.as_ptr().add(col));
                        let distance = _mm256_add_ps(_mm256_fmadd_ps(*sum, scale, terms), row_term);
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
}
