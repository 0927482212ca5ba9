//! Tiles of codes with AVX-512 VNNI: four products of int8 are added to a sum in one step.

use std::arch::x86_64::*;

use super::code_kernel::CodeKernel;
use super::codes::{CodeBlock, GROUP, Line};
use super::{BLOCK, ROWS, Tile, TileInput};
use crate::Level;

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

/// Lines of a block from its rows, which are of equal length: 16 groups of all rows at a time, as a matrix that is transposed.
///
/// # Panics
/// Without AVX-512, or if there are fewer lines than groups.
pub(super) fn interleave(rows: &[&[u8]; BLOCK], lines: &mut [Line]) {
    assert!(Level::detect() == Level::Avx512);
    // SAFETY: the processor has the features, as asserted.
    unsafe { interleave_512(rows, lines) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn interleave_512(rows: &[&[u8]; BLOCK], lines: &mut [Line]) {
    let len = rows[0].len();
    assert!(rows.iter().all(|row| row.len() == len) && lines.len() * GROUP >= len);
    for (at, lines) in lines.chunks_mut(BLOCK).enumerate() {
        let first = at * BLOCK * GROUP;
        let mask = u64::MAX.checked_shr((BLOCK * GROUP).saturating_sub(len - first) as u32).unwrap_or(0);
        let load = |row: usize| {
            // SAFETY: `first` is at most `len`, and the mask has no more bits than there are bytes after it.
            unsafe { _mm512_maskz_loadu_epi8(mask, rows[row].as_ptr().add(first).cast()) }
        };
        let matrix = transposed(std::array::from_fn(load));
        for (line, column) in lines.iter_mut().zip(matrix) {
            // SAFETY: a line has 64 bytes, aligned to that.
            unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), column) };
        }
    }
}

/// Rows of 16 times 32 bits as columns.
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; BLOCK]) -> [__m512i; BLOCK] {
    // Pairs of rows, then fours, within the four lanes of 128 bits; then whole lanes.
    let mut pairs = rows;
    for at in 0..BLOCK / 2 {
        let (a, b) = (rows[2 * at], rows[2 * at + 1]);
        (pairs[2 * at], pairs[2 * at + 1]) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    let mut fours = pairs;
    for at in (0..BLOCK).step_by(4) {
        for half in 0..2 {
            let (a, b) = (pairs[at + half], pairs[at + half + 2]);
            (fours[at + 2 * half], fours[at + 2 * half + 1]) =
                (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        }
    }
    let mut columns = fours;
    for at in 0..4 {
        let [a, b, c, d] = [fours[at], fours[4 + at], fours[8 + at], fours[12 + at]];
        let (low_even, low_odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (high_even, high_odd) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        columns[at] = _mm512_shuffle_i32x4::<0x88>(low_even, high_even);
        columns[8 + at] = _mm512_shuffle_i32x4::<0xdd>(low_even, high_even);
        columns[4 + at] = _mm512_shuffle_i32x4::<0x88>(low_odd, high_odd);
        columns[12 + at] = _mm512_shuffle_i32x4::<0xdd>(low_odd, high_odd);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_codes_are_where_the_portable_code_puts_them() {
        if Level::detect() != Level::Avx512 {
            return;
        }
        for len in [1, 3, 4, 63, 64, 65, 100, 128, 384] {
            let rows: Vec<Vec<u8>> =
                (0..BLOCK).map(|row| (0..len).map(|at| (row * 31 + at * 7) as u8).collect()).collect();
            let mut lines = vec![Line([1; 64]); len.div_ceil(GROUP)];
            interleave(&std::array::from_fn(|row| rows[row].as_slice()), &mut lines);
            for (at, line) in lines.iter().enumerate() {
                for (place, &code) in line.0.iter().enumerate() {
                    let expected = rows[place / GROUP].get(at * GROUP + place % GROUP).copied().unwrap_or(0);
                    assert_eq!(code.cast_unsigned(), expected, "{len} {at} {place}");
                }
            }
        }
    }
}
