//! Tiles of codes by AMX: one instruction adds 64 products to each of 16 x 16 sums.

use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::mem::MaybeUninit;

use super::code_kernel::{AllPairs, CodeKernel, CodeKernels};
use super::codes::{CodeBlock, CodePanel};
use super::x64_codes::{self, Place};
use super::{BLOCK, ROWS, Tile, TileInput};

pub(super) fn amx() -> CodeKernels {
    // SAFETY: the level includes AMX, AVX-512 BW and VNNI.
    let tile: CodeKernel = |rows, cols, input, tile| unsafe { tile_amx(rows, cols, input, tile) };
    // SAFETY: as above.
    let all_pairs: AllPairs = |panel, scale, terms, distances| unsafe { all_pairs_amx(panel, scale, terms, distances) };
    CodeKernels { tile, all_pairs, ..x64_codes::vnni() }
}

/// The operand of `ldtilecfg`: the number of rows, and of bytes per row, of each tile register.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight registers hold 16 rows of 64 bytes.
static SHAPES: Shapes = {
    let mut shapes = Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    let mut register = 0;
    while register < 8 {
        shapes.row_bytes[register] = 64;
        shapes.rows[register] = BLOCK as u8;
        register += 1;
    }
    shapes
};

/// Configures the tile registers of this thread, once, as that takes as long as half a tile. The configuration stays valid:
/// compilers use AMX for its intrinsics only, and nothing else in this process has any.
///
/// # Safety
/// The processor must have AMX, and the system let this process use it.
#[inline]
unsafe fn shape() {
    thread_local! { static SHAPED: Cell<bool> = const { Cell::new(false) } }
    if !SHAPED.get() {
        // SAFETY: the caller promises that AMX may be used. The instruction clears all tile registers.
        unsafe {
            asm!(
                "ldtilecfg [{}]",
                in(reg) &raw const SHAPES,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        SHAPED.set(true);
    }
}

/// Sums of products of 16 rows and 16 columns.
#[repr(C, align(64))]
struct Sums([[i32; BLOCK]; BLOCK]);

type Products = [MaybeUninit<Sums>; 2];

/// Products of a block of rows with two blocks of columns.
///
/// # Safety
/// See [`shape`].
#[inline]
unsafe fn products(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], products: &mut Products) {
    let steps = rows.tiles().len();
    assert!(steps > 0 && cols.iter().all(|block| block.len() == steps * BLOCK));
    // SAFETY: each block has 1024 bytes for each of `steps` steps, as asserted, and `products` has room for two tiles. `shape`
    // has configured the registers.
    unsafe {
        shape();
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "2:",
            "tileloadd tmm4, [{rows} + {line}]",
            "tileloadd tmm6, [{left} + {line}]",
            "tdpbssd tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right} + {line}]",
            "tdpbssd tmm1, tmm4, tmm7",
            "add {rows}, 1024",
            "add {left}, 1024",
            "add {right}, 1024",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{products} + {line}], tmm0",
            "tilestored [{products} + {line} + 1024], tmm1",
            rows = inout(reg) rows.tiles().as_ptr() => _,
            left = inout(reg) cols[0].as_ptr() => _,
            right = inout(reg) cols[1].as_ptr() => _,
            steps = inout(reg) steps => _,
            products = in(reg) products.as_mut_ptr(),
            line = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// # Safety
/// See [`shape`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile_amx(rows: CodeBlock<'_>, cols: [CodeBlock<'_>; 2], input: &TileInput<'_>, tile: &mut Tile) {
    let mut sums = [const { MaybeUninit::uninit() }; 2];
    // SAFETY: as promised.
    unsafe { products(rows, cols, &mut sums) };
    for row in 0..ROWS {
        // SAFETY: `products` has written all sums.
        let products =
            sums.each_ref().map(|sums| unsafe { _mm512_load_si512(sums.assume_init_ref().0[row].as_ptr().cast()) });
        x64_codes::finish_row(rows, row, cols, products, input, tile);
    }
}

/// Products of two blocks of rows with two blocks of columns, in row-major order.
///
/// # Safety
/// See [`shape`].
#[inline]
unsafe fn products_of_pairs(rows: [CodeBlock<'_>; 2], cols: [CodeBlock<'_>; 2], products: &mut [MaybeUninit<Sums>; 4]) {
    let steps = rows[0].tiles().len();
    assert!(steps > 0 && rows[1].tiles().len() == steps && cols.iter().all(|block| block.len() == steps * BLOCK));
    // SAFETY: as above; here `products` has room for four tiles.
    unsafe {
        shape();
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{upper} + {line}]",
            "tileloadd tmm6, [{left} + {line}]",
            "tdpbssd tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right} + {line}]",
            "tdpbssd tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{lower} + {line}]",
            "tdpbssd tmm2, tmm5, tmm6",
            "tdpbssd tmm3, tmm5, tmm7",
            "add {upper}, 1024",
            "add {lower}, 1024",
            "add {left}, 1024",
            "add {right}, 1024",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{products} + {line}], tmm0",
            "tilestored [{products} + {line} + 1024], tmm1",
            "tilestored [{products} + {line} + 2048], tmm2",
            "tilestored [{products} + {line} + 3072], tmm3",
            upper = inout(reg) rows[0].tiles().as_ptr() => _,
            lower = inout(reg) rows[1].tiles().as_ptr() => _,
            left = inout(reg) cols[0].as_ptr() => _,
            right = inout(reg) cols[1].as_ptr() => _,
            steps = inout(reg) steps => _,
            products = in(reg) products.as_mut_ptr(),
            line = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// # Safety
/// See [`shape`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn all_pairs_amx(panel: &CodePanel, scale: f32, terms: &[f32], distances: &mut [f32]) {
    let blocks = panel.rows().div_ceil(BLOCK);
    let mut sums = [const { MaybeUninit::uninit() }; 4];
    for first_row in (0..blocks).step_by(2) {
        for first_col in (first_row..blocks).step_by(2) {
            // The number of blocks of a panel is even, so there is a second one.
            let (rows, cols) = ([first_row, first_row + 1], [first_col, first_col + 1]);
            // SAFETY: as promised.
            unsafe { products_of_pairs(rows.map(|at| panel.block(at)), cols.map(|at| panel.block(at)), &mut sums) };
            let pairs = rows.into_iter().flat_map(|row| cols.map(|col| (row, col)));
            for ((row_block, col_block), sums) in pairs.zip(&sums) {
                if row_block >= blocks || col_block >= blocks || col_block < row_block {
                    continue;
                }
                let mut place = Place { row_block, rows: panel.block(row_block), scale, terms, distances };
                let cols = panel.block(col_block);
                for row in 0..ROWS {
                    // SAFETY: `products_of_pairs` has written all sums.
                    let product = unsafe { _mm512_load_si512(sums.assume_init_ref().0[row].as_ptr().cast()) };
                    place.put(row, col_block, cols, product);
                }
            }
        }
    }
}
