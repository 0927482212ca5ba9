//! How far apart are two values? Kernels by element type and metric, for the level of the processor.
//!
//! Values are byte slices in pgvector's element encoding, of any alignment. [`kernel`] gives the function to call.
//!
//! | elements | metrics | x86-64 | aarch64 | elsewhere |
//! |---|---|---|---|---|
//! | f32 | l2, inner product, cosine, l1 | AVX-512, AVX2 + FMA, SSE2 | NEON | what the compiler makes of the portable code |
//! | f16 | l2, inner product, cosine, l1 | the same, converted by F16C | NEON, converted by instruction | software conversion |
//! | bits | hamming, jaccard | AVX-512 VPOPCNTDQ, POPCNT | words | words |
//! | sparse | l2, inner product, cosine, l1 | portable merge; one against many by look-ups ([`SparseQuery`]) | the same | the same |
//! | tiles of f32 | products, differences | AVX-512, AVX2 + FMA | NEON | portable |
//! | tiles of bits | hamming, jaccard | AVX-512 VPOPCNTDQ, AVX-512, AVX2 | what the compiler makes of the portable code | the same |
//! | tiles of int8 codes | products | AMX, AVX-512 VNNI, AVX2 | dot products | portable, for tests |
#![allow(unsafe_code)] // intrinsics, and functions compiled for a processor feature, are called only after it was detected

#[cfg(target_arch = "x86_64")]
mod amx;
mod bits;
mod candidate;
mod dense;
mod elements;
mod least;
mod level;
mod sparse;
mod tile;

pub use candidate::Candidate;
pub use dense::decode;
pub use elements::Elements;
pub use least::Least;
pub use level::{Level, LevelError};
pub use pgvector::Metric;
pub use sparse::{SparseQuery, entries as sparse_entries, norm as sparse_norm};
pub use tile::{
    AllPairs, BLOCK, BitKernel, BitLine, BitPanel, COLS, CodeBlock, CodeKernel, CodeKernels, CodeNote, CodePanel,
    CodeProduct, Nearest, Panel, ROWS, Tile, TileInput, TileKernel, bit_kernel, code_kernels, difference_kernel,
    encode, tile_kernel,
};

/// The distance of two values of equal length (in bytes, except sparse ones); smaller is nearer. Never NaN: a NaN becomes infinity.
pub type Kernel = fn(&[u8], &[u8]) -> f32;

/// The kernel for an encoding and a metric on this processor; `None` where pgvector has no such operator class.
#[must_use]
pub fn kernel(elements: Elements, metric: Metric) -> Option<Kernel> {
    kernel_at(elements, metric, Level::current())
}

/// The kernel of a level, which must be one of [`Level::available`].
fn kernel_at(elements: Elements, metric: Metric, level: Level) -> Option<Kernel> {
    use Metric::{Cosine, Hamming, InnerProduct, Jaccard, L1, L2};
    Some(match (elements, metric) {
        (Elements::F32, L2) => dense::f32_l2(level),
        (Elements::F32, InnerProduct | Cosine) => dense::f32_inner_product(level),
        (Elements::F32, L1) => dense::f32_l1(level),
        (Elements::F16, L2) => dense::f16_l2(level),
        (Elements::F16, InnerProduct | Cosine) => dense::f16_inner_product(level),
        (Elements::F16, L1) => dense::f16_l1(level),
        (Elements::Bits, Hamming) => bits::hamming(level),
        (Elements::Bits, Jaccard) => bits::jaccard(level),
        (Elements::Sparse, L2) => sparse::l2,
        (Elements::Sparse, InnerProduct | Cosine) => sparse::inner_product,
        (Elements::Sparse, L1) => sparse::l1,
        (Elements::F32 | Elements::F16 | Elements::Sparse, Hamming | Jaccard)
        | (Elements::Bits, L2 | InnerProduct | Cosine | L1) => return None,
    })
}

/// Starts to load the first bytes of a value into the processor's cache, so that a later distance does not wait for them. The processor
/// loads the rest by itself as soon as the distance is computed.
#[inline]
pub fn prefetch(value: &[u8]) {
    /// Bytes per cache line.
    const LINE: usize = 64;
    /// A kilobyte of each of 32 neighbors fits into the first cache of most processors.
    const LINES: usize = 16;
    for line in value.chunks(LINE).take(LINES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE is part of the architecture, and a prefetch changes nothing that a program can see.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a prefetch changes nothing that a program can see. (There is no stable intrinsic.)
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{line}]",
                line = in(reg) line.as_ptr(),
                options(readonly, nostack, preserves_flags)
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}

/// Replaces NaN, the result of an overflow such as inf - inf, by infinity: NaN has no place in an order.
#[must_use]
pub fn ordered(distance: f32) -> f32 {
    if distance.is_nan() { f32::INFINITY } else { distance }
}

#[cfg(test)]
mod tests;
