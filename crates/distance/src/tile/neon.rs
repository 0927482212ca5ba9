//! Tiles by NEON intrinsics.

use std::arch::aarch64::*;

use super::{BLOCK, COLS, ROWS, Tile, TileInput, TileKernel};

const LANES: usize = 4;
/// Rows whose sums are kept in registers at a time: 4 rows x 16 columns take 16 of the 32 registers.
const ROWS_AT_ONCE: usize = 4;
const LANE_SETS: usize = BLOCK / LANES;

pub(super) fn neon<const DIFFERENCES: bool>() -> TileKernel {
    tile::<DIFFERENCES>
}

fn tile<const DIFFERENCES: bool>(rows: &[f32], cols: [&[f32]; 2], input: &TileInput<'_>, tile: &mut Tile) {
    let dims = rows.len() / BLOCK;
    assert!(cols.iter().all(|block| block.len() >= dims * BLOCK));
    tile.hits = [0; ROWS];
    for first in (0..ROWS).step_by(ROWS_AT_ONCE) {
        for (side, cols) in cols.iter().enumerate() {
            // SAFETY: NEON is part of the architecture; each block has BLOCK values for each of `dims` dimensions, as asserted.
            let sums = unsafe { sums::<DIFFERENCES>(&rows[first..], cols, dims) };
            for (at, sums) in sums.iter().enumerate() {
                finish(first + at, side, sums, input, tile);
            }
        }
    }
}

/// # Safety
/// For `dims` dimensions, `cols` must have `dims * BLOCK` values, and `rows` at least `(dims - 1) * BLOCK + ROWS_AT_ONCE`.
#[target_feature(enable = "neon")]
unsafe fn sums<const DIFFERENCES: bool>(
    rows: &[f32],
    cols: &[f32],
    dims: usize,
) -> [[float32x4_t; LANE_SETS]; ROWS_AT_ONCE] {
    let mut sums = [[vdupq_n_f32(0.0); LANE_SETS]; ROWS_AT_ONCE];
    for dim in 0..dims {
        // SAFETY: promised by the caller.
        let (row, cols): (_, [float32x4_t; LANE_SETS]) = unsafe {
            let cols = cols.as_ptr().add(dim * BLOCK);
            (vld1q_f32(rows.as_ptr().add(dim * BLOCK)), std::array::from_fn(|set| vld1q_f32(cols.add(set * LANES))))
        };
        if DIFFERENCES {
            let rows = [
                vdupq_laneq_f32::<0>(row),
                vdupq_laneq_f32::<1>(row),
                vdupq_laneq_f32::<2>(row),
                vdupq_laneq_f32::<3>(row),
            ];
            for (sums, row) in sums.iter_mut().zip(rows) {
                sums.iter_mut().zip(cols).for_each(|(sum, col)| *sum = vaddq_f32(*sum, vabdq_f32(row, col)));
            }
            continue;
        }
        for (set, &col) in cols.iter().enumerate() {
            sums[0][set] = vfmaq_laneq_f32::<0>(sums[0][set], col, row);
            sums[1][set] = vfmaq_laneq_f32::<1>(sums[1][set], col, row);
            sums[2][set] = vfmaq_laneq_f32::<2>(sums[2][set], col, row);
            sums[3][set] = vfmaq_laneq_f32::<3>(sums[3][set], col, row);
        }
    }
    sums
}

/// Turns sums of a row with the columns of one side into distances and hits.
fn finish(row: usize, side: usize, sums: &[float32x4_t; LANE_SETS], input: &TileInput<'_>, tile: &mut Tile) {
    for (set, &sum) in sums.iter().enumerate() {
        let mut products = [0f32; LANES];
        // SAFETY: NEON is part of the architecture, and `products` has room for four values.
        unsafe { vst1q_f32(products.as_mut_ptr(), sum) };
        for (lane, product) in products.into_iter().enumerate() {
            let col = side * BLOCK + set * LANES + lane;
            debug_assert!(col < COLS);
            let distance = input.scale * product + input.col_terms[col] + input.row_terms[row];
            let hit = distance < input.row_limits[row] || distance < input.col_limits[col];
            tile.distances[row][col] = distance;
            tile.hits[row] |= u32::from(hit) << col;
        }
    }
}
