//! Tiles of codes by aarch64's `sdot`, which adds four products of int8 to each sum.

use std::arch::aarch64::*;

use super::code_kernel::{self, AllPairs, CodeKernel, CodeKernels};
use super::codes::{CodeBlock, GROUP};
use super::{BLOCK, ROWS};

/// Vectors per register.
const LANES: usize = 4;
/// Rows whose sums are kept in registers at a time: 4 rows x 16 columns take 16 of the 32 registers.
const ROWS_AT_ONCE: usize = 4;
const LANE_SETS: usize = BLOCK / LANES;

pub(super) fn dot() -> CodeKernels {
    let tile: CodeKernel = |rows, cols, input, tile| {
        // SAFETY: the level includes the dot products.
        code_kernel::tile_of(|rows, cols| unsafe { multiply(rows, cols) }, rows, cols, input, tile);
    };
    let all_pairs: AllPairs = |panel, scale, terms, distances| {
        // SAFETY: as above.
        code_kernel::all_pairs_of(|rows, cols| unsafe { multiply(rows, cols) }, panel, scale, terms, distances);
    };
    CodeKernels { tile, all_pairs, product: code_kernel::product }
}

/// Integer products of a block of rows and a block of columns.
#[target_feature(enable = "neon,dotprod")]
fn multiply(rows: CodeBlock<'_>, cols: CodeBlock<'_>) -> [[i32; BLOCK]; ROWS] {
    let groups = rows.len();
    assert!(cols.len() >= groups);
    let mut products = [[0i32; BLOCK]; ROWS];
    for (first, products) in (0..).step_by(ROWS_AT_ONCE).zip(products.chunks_exact_mut(ROWS_AT_ONCE)) {
        let mut sums = [[vdupq_n_s32(0); LANE_SETS]; ROWS_AT_ONCE];
        for group in 0..groups {
            // SAFETY: each block has 64 bytes for each of `groups` groups, as asserted; a row has four of them.
            let (row, cols): (_, [int8x16_t; LANE_SETS]) = unsafe {
                let cols = cols.as_ptr().add(group * GROUP * BLOCK);
                let row = rows.as_ptr().add(group * GROUP * BLOCK + first * GROUP);
                (vld1q_s8(row), std::array::from_fn(|set| vld1q_s8(cols.add(set * GROUP * LANES))))
            };
            let row = vreinterpretq_s32_s8(row);
            let each = [
                vdupq_laneq_s32::<0>(row),
                vdupq_laneq_s32::<1>(row),
                vdupq_laneq_s32::<2>(row),
                vdupq_laneq_s32::<3>(row),
            ];
            for (sums, row) in sums.iter_mut().zip(each) {
                for (sum, col) in sums.iter_mut().zip(cols) {
                    *sum = sdot(*sum, col, vreinterpretq_s8_s32(row));
                }
            }
        }
        for (sums, products) in sums.iter().zip(products) {
            for (set, &sum) in sums.iter().enumerate() {
                // SAFETY: there is room for four values.
                unsafe { vst1q_s32(products[set * LANES..].as_mut_ptr(), sum) };
            }
        }
    }
    products
}

/// Adds to each sum the four products of its lane.
#[target_feature(enable = "neon,dotprod")]
fn sdot(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: one instruction on registers, of a feature that the function is compiled for; the intrinsic is not stable yet.
    unsafe {
        std::arch::asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
                        options(pure, nomem, nostack, preserves_flags));
    }
    sum
}
