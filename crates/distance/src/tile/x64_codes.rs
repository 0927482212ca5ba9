//! Tiles of codes with AVX-512 VNNI: four products of int8 are added to a sum in one step.

use std::arch::x86_64::*;

use super::code_kernel::CodeKernel;
use super::codes::{CodeBlock, GROUP};
use super::{BLOCK, ROWS, Tile, TileInput};

/// Rows whose sums are kept in registers at a time: 8 rows x 32 columns are 16 of the 32 registers.
const ROWS_512: usize = 8;

pub(super) fn avx512() -> CodeKernel {
    // SAFETY: `Level::detect` found AVX-512 with VNNI.
    |rows, cols, input, tile| unsafe { tile_512(rows, cols, input, tile) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn tile_512(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], input: &TileInput<'_>, tile: &mut Tile) {
    let groups = rows.len();
    assert!(cols.iter().all(|block| block.len() >= groups));
    // The instruction takes unsigned codes on one side: 128 is added to those of the columns, and 128 times the sum of the row's
    // codes subtracted in the end.
    let bias = _mm512_set1_epi8(-128);
    for first in (0..ROWS).step_by(ROWS_512) {
        let mut sums = [[_mm512_setzero_si512(); 2]; ROWS_512];
        for group in 0..groups {
            // SAFETY: each block has a line of 64 aligned bytes for each of `groups` groups, as asserted.
            let (left, right, row) = unsafe {
                (
                    _mm512_load_si512(cols[0].as_ptr().add(group * GROUP * BLOCK).cast()),
                    _mm512_load_si512(cols[1].as_ptr().add(group * GROUP * BLOCK).cast()),
                    rows.as_ptr().add(group * GROUP * BLOCK + first * GROUP).cast::<i32>(),
                )
            };
            let (left, right) = (_mm512_xor_si512(left, bias), _mm512_xor_si512(right, bias));
            for (at, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `first + at` is below BLOCK, and the lines are aligned.
                let a = _mm512_set1_epi32(unsafe { *row.add(at) });
                sums[0] = _mm512_dpbusd_epi32(sums[0], left, a);
                sums[1] = _mm512_dpbusd_epi32(sums[1], right, a);
            }
        }
        for (at, sums) in sums.iter().enumerate() {
            let row = first + at;
            let bias = _mm512_set1_epi32(128 * rows.sums[row]);
            let factor = _mm512_set1_ps(input.scale * rows.factors[row]);
            let row_term = _mm512_set1_ps(input.row_terms[row]);
            let row_limit = _mm512_set1_ps(input.row_limits[row]);
            let mut hits = 0;
            for (half, sum) in sums.iter().enumerate() {
                // SAFETY: factors have BLOCK values; terms, limits and distances COLS, of which BLOCK are used from each half's
                // start.
                unsafe {
                    let factors = _mm512_loadu_ps(cols[half].factors.as_ptr());
                    let terms = _mm512_loadu_ps(input.col_terms.as_ptr().add(half * BLOCK));
                    let limits = _mm512_loadu_ps(input.col_limits.as_ptr().add(half * BLOCK));
                    let product = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(*sum, bias)), factors);
                    let distance = _mm512_add_ps(_mm512_fmadd_ps(product, factor, terms), row_term);
                    let below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(distance, row_limit)
                        | _mm512_cmp_ps_mask::<_CMP_LT_OQ>(distance, limits);
                    hits |= u32::from(below) << (half * BLOCK);
                    _mm512_storeu_ps(tile.distances[row].as_mut_ptr().add(half * BLOCK), distance);
                }
            }
            tile.hits[row] = hits;
        }
    }
}
