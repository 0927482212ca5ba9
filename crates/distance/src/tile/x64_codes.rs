//! Tiles of codes by AVX-512 VNNI, which adds four products of int8 to each sum.

use std::arch::x86_64::*;

use super::code_kernel::{AllPairs, CodeKernel, CodeKernels};
use super::codes::{CodeBlock, CodePanel, GROUP, Line};
use super::{BLOCK, ROWS, Tile, TileInput, x64};
use crate::Level;

pub(super) fn vnni() -> CodeKernels {
    // SAFETY: the level includes AVX-512 BW and VNNI.
    let tile: CodeKernel = |rows, cols, input, tile| unsafe { tile_512(rows, cols, input, tile) };
    // SAFETY: as above.
    let all_pairs: AllPairs = |panel, scale, terms, distances| unsafe { all_pairs_512(panel, scale, terms, distances) };
    // SAFETY: as above.
    CodeKernels { tile, all_pairs, product: |a, b| unsafe { product_512(a, b) } }
}

/// Products of `R` rows from `first` with `C` blocks of columns. Callers choose `R * C` = 16, so that all sums stay in the 32
/// registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn products<const R: usize, const C: usize>(
    rows: CodeBlock<'_>,
    first: usize,
    cols: [CodeBlock<'_>; C],
) -> [[__m512i; C]; R] {
    let groups = rows.len();
    assert!(first + R <= ROWS && cols.iter().all(|block| block.len() >= groups));
    // The instruction multiplies unsigned by signed codes: 128 is added to those of the columns, and 128 times the sum of the
    // row's codes subtracted at the end.
    let bias = _mm512_set1_epi8(-128);
    let mut sums = [[_mm512_setzero_si512(); C]; R];
    for group in 0..groups {
        let line = group * GROUP * BLOCK;
        // SAFETY: each block has a line of 64 aligned bytes for each of `groups` groups, as asserted.
        let cols = cols.map(|block| unsafe { _mm512_load_si512(block.as_ptr().add(line).cast()) });
        let cols = cols.map(|codes| _mm512_xor_si512(codes, bias));
        // SAFETY: as above, and `first` is below BLOCK.
        let row = unsafe { rows.as_ptr().add(line + first * GROUP).cast::<i32>() };
        for (at, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `first + at` is below BLOCK, as asserted, and the lines are aligned.
            let a = _mm512_set1_epi32(unsafe { *row.add(at) });
            for (sum, codes) in sums.iter_mut().zip(cols) {
                *sum = _mm512_dpbusd_epi32(*sum, codes, a);
            }
        }
    }
    for (at, sums) in sums.iter_mut().enumerate() {
        let bias = _mm512_set1_epi32(128 * rows.sums[first + at]);
        sums.iter_mut().for_each(|sum| *sum = _mm512_sub_epi32(*sum, bias));
    }
    sums
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn tile_512(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], input: &TileInput<'_>, tile: &mut Tile) {
    for first in (0..ROWS).step_by(8) {
        for (at, products) in products::<8, 2>(rows, first, cols).into_iter().enumerate() {
            finish_row(rows, first + at, cols, products, input, tile);
        }
    }
}

/// Turns the products of a row into distances and hits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn finish_row(
    rows: CodeBlock<'_>,
    row: usize,
    cols: [CodeBlock<'_>; 2],
    products: [__m512i; 2],
    input: &TileInput<'_>,
    tile: &mut Tile,
) {
    let decoded = |half: usize| {
        // SAFETY: factors have BLOCK values.
        let factors = unsafe { _mm512_loadu_ps(cols[half].factors.as_ptr()) };
        _mm512_mul_ps(_mm512_cvtepi32_ps(products[half]), factors)
    };
    let factor = _mm512_set1_ps(input.scale * rows.factors[row]);
    x64::finish_row(row, factor, [decoded(0), decoded(1)], input, tile);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn all_pairs_512(panel: &CodePanel, scale: f32, terms: &[f32], distances: &mut [f32]) {
    let blocks = panel.rows().div_ceil(BLOCK);
    for row_block in 0..blocks {
        let rows = panel.block(row_block);
        let mut place = Place { row_block, rows, scale, terms, distances };
        let mut col_block = row_block;
        while col_block < blocks {
            let left = panel.block(col_block);
            if col_block + 1 == blocks {
                for (row, [product]) in products::<ROWS, 1>(rows, 0, [left]).into_iter().enumerate() {
                    place.put(row, col_block, left, product);
                }
                break;
            }
            let right = panel.block(col_block + 1);
            for first in (0..ROWS).step_by(8) {
                for (at, [a, b]) in products::<8, 2>(rows, first, [left, right]).into_iter().enumerate() {
                    place.put(first + at, col_block, left, a);
                    place.put(first + at, col_block + 1, right, b);
                }
            }
            col_block += 2;
        }
    }
}

/// The rows of the distance matrix that belong to one block.
pub(super) struct Place<'a> {
    pub(super) row_block: usize,
    pub(super) rows: CodeBlock<'a>,
    pub(super) scale: f32,
    pub(super) terms: &'a [f32],
    pub(super) distances: &'a mut [f32],
}

impl Place<'_> {
    /// Stores the distances of a row from a block of columns, given their products.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put(&mut self, row: usize, col_block: usize, cols: CodeBlock<'_>, product: __m512i) {
        let (at, col) = (self.row_block * BLOCK + row, col_block * BLOCK);
        let row_term = _mm512_set1_ps(self.terms[at]);
        let factor = _mm512_set1_ps(self.scale * self.rows.factors[row]);
        let place = &mut self.distances[at * self.terms.len() + col..][..BLOCK];
        let terms = &self.terms[col..][..BLOCK];
        // SAFETY: factors, terms and the place have BLOCK values each.
        unsafe {
            let product = _mm512_mul_ps(_mm512_cvtepi32_ps(product), _mm512_loadu_ps(cols.factors.as_ptr()));
            let distance = _mm512_fmadd_ps(product, factor, _mm512_loadu_ps(terms.as_ptr()));
            _mm512_storeu_ps(place.as_mut_ptr(), _mm512_add_ps(distance, row_term));
        }
    }
}

/// The product of the codes of two vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn product_512(a: &[u8], b: &[u8]) -> i32 {
    let ((wide_a, rest_a), (wide_b, rest_b)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    let bias = _mm512_set1_epi8(-128);
    let (mut sum, mut sums) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for (a, b) in wide_a.iter().zip(wide_b) {
        // SAFETY: 64 bytes each.
        let (a, b) = unsafe { (_mm512_loadu_si512(a.as_ptr().cast()), _mm512_loadu_si512(b.as_ptr().cast())) };
        // The bias of `a` adds 128 times the sum of `b`'s codes, which is subtracted at the end.
        sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(a, bias), b);
        sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), b);
    }
    let rest = rest_a.iter().zip(rest_b).map(|(a, b)| i32::from(a.cast_signed()) * i32::from(b.cast_signed()));
    _mm512_reduce_add_epi32(sum) - 128 * _mm512_reduce_add_epi32(sums) + rest.sum::<i32>()
}

/// Fills the lines of a block from its rows, which have equal lengths: transposes matrices of 16 rows x 16 groups. The matrices
/// before transposition go to `tiles`, unless that is empty.
///
/// # Panics
/// Without AVX-512, or if there are fewer lines than groups.
pub(super) fn interleave(rows: &[&[u8]; BLOCK], lines: &mut [Line], tiles: &mut [Line]) {
    assert!(Level::current() >= Level::Avx512);
    // SAFETY: the processor has the features, as asserted.
    unsafe { interleave_512(rows, lines, tiles) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn interleave_512(rows: &[&[u8]; BLOCK], lines: &mut [Line], tiles: &mut [Line]) {
    let len = rows[0].len();
    // No more lines than this: then every load begins within its row.
    let whole = len.div_ceil(GROUP).next_multiple_of(BLOCK);
    assert!(rows.iter().all(|row| row.len() == len) && (len.div_ceil(GROUP)..=whole).contains(&lines.len()));
    let mut tiles = tiles.chunks_mut(BLOCK);
    for (at, lines) in lines.chunks_mut(BLOCK).enumerate() {
        let first = at * BLOCK * GROUP;
        let mask = u64::MAX.checked_shr((BLOCK * GROUP).saturating_sub(len - first) as u32).unwrap_or(0);
        let load = |row: usize| {
            // SAFETY: `first` is at most `len`, and the mask has no more bits than there are bytes after it.
            unsafe { _mm512_maskz_loadu_epi8(mask, rows[row].as_ptr().add(first).cast()) }
        };
        let matrix = std::array::from_fn(load);
        for (line, row) in tiles.next().into_iter().flatten().zip(matrix) {
            // SAFETY: a line has 64 bytes, aligned to that.
            unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), row) };
        }
        let matrix = transposed(matrix);
        for (line, column) in lines.iter_mut().zip(matrix) {
            // SAFETY: a line has 64 bytes, aligned to that.
            unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), column) };
        }
    }
}

/// Transposes a matrix of 16 x 16 elements of 32 bits.
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; BLOCK]) -> [__m512i; BLOCK] {
    // Interleave pairs of rows, then fours, within the four lanes of 128 bits; then move whole lanes.
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
        if Level::current() < Level::Avx512 {
            // `every_level_equals_the_reference_on_every_length` says which levels are skipped.
            return;
        }
        for len in [1, 3, 4, 63, 64, 65, 100, 128, 384] {
            let rows: Vec<Vec<u8>> =
                (0..BLOCK).map(|row| (0..len).map(|at| (row * 31 + at * 7) as u8).collect()).collect();
            let all = std::array::from_fn(|row| rows[row].as_slice());
            let of = |row: usize, dim: usize| rows[row].get(dim).copied().unwrap_or(0).cast_signed();
            let mut lines = vec![Line([1; 64]); len.div_ceil(GROUP)];
            interleave(&all, &mut lines, &mut []);
            // With lines padded to whole tiles, and with the codes by vectors as well.
            let mut padded = vec![Line([1; 64]); len.div_ceil(64) * BLOCK];
            let mut tiles = padded.clone();
            interleave(&all, &mut padded, &mut tiles);
            assert!(lines.iter().zip(&padded).all(|(line, padded)| line.0 == padded.0), "{len}");
            for (at, (line, tile)) in padded.iter().zip(&tiles).enumerate() {
                for place in 0..64 {
                    assert_eq!(line.0[place], of(place / GROUP, at * GROUP + place % GROUP), "{len} {at} {place}");
                    assert_eq!(tile.0[place], of(at % BLOCK, at / BLOCK * 64 + place), "{len} {at} {place}");
                }
            }
        }
    }
}
