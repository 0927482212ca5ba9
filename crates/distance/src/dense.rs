//! f32 and f16 vectors.
//!
//! Each body is a loop over fixed-size blocks with [`LANES`] independent sums, which the compiler keeps in vector registers,
//! and a scalar tail.

use crate::level::for_each_level;
use crate::{Elements, Level, ordered, sparse};

/// Elements per block: eight 8-lane sums, enough to hide the latency of a fused multiply-add.
const LANES: usize = 64;
/// Elements per load.
const STEP: usize = 8;

/// How a level loads f32s from bytes and multiplies them.
trait Dense {
    /// Bytes per element.
    const BYTES: usize;
    /// Whether the processor has an instruction for `a * b + c`; elsewhere `f32::mul_add` is a slow library call.
    const FUSED: bool;
    /// Loads [`STEP`] elements.
    fn load(bytes: &[u8]) -> [f32; STEP];
    /// Loads one element.
    fn load_one(bytes: &[u8]) -> f32;
    /// `a * b + c`
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        if Self::FUSED { a.mul_add(b, c) } else { a * b + c }
    }
}

#[inline(always)]
fn f32_at(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[inline(always)]
fn load_f32s<const FUSED: bool>(bytes: &[u8]) -> [f32; STEP] {
    let bytes = &bytes[..4 * STEP];
    #[cfg(target_arch = "x86_64")]
    if FUSED {
        use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps};
        let mut lanes = [0f32; STEP];
        // SAFETY: 32 bytes can be read and 32 written, at any alignment; `for_each_level` inlines this only into functions
        // compiled for AVX, which run only where it was detected. Without the intrinsics the compiler does not vectorise all
        // bodies: inner products took four times as long.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_loadu_ps(bytes.as_ptr().cast())) };
        return lanes;
    }
    std::array::from_fn(|lane| f32_at(&bytes[4 * lane..4 * lane + 4]))
}

struct F32<const FUSED: bool>;
impl<const FUSED: bool> Dense for F32<FUSED> {
    const BYTES: usize = 4;
    const FUSED: bool = FUSED;
    #[inline(always)]
    fn load(bytes: &[u8]) -> [f32; STEP] {
        load_f32s::<FUSED>(bytes)
    }
    #[inline(always)]
    fn load_one(bytes: &[u8]) -> f32 {
        f32_at(bytes)
    }
}

#[inline(always)]
fn f16_at(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32_const()
}

#[inline(always)]
fn load_f16s<const FUSED: bool>(bytes: &[u8]) -> [f32; STEP] {
    let bytes = &bytes[..2 * STEP];
    #[cfg(target_arch = "x86_64")]
    if FUSED {
        use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
        let mut lanes = [0f32; STEP];
        // SAFETY: 16 bytes can be read and 32 written, at any alignment; `for_each_level` inlines this only into functions
        // compiled for F16C and AVX, which run only where these were detected.
        unsafe {
            let halves = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
        return lanes;
    }
    #[cfg(target_arch = "aarch64")]
    if FUSED {
        use std::arch::aarch64::{float32x4_t, vld1q_u8, vst1q_f32};
        let mut lanes = [0f32; STEP];
        let (low, high): (float32x4_t, float32x4_t);
        // SAFETY: NEON is part of the architecture; 16 bytes can be read and 32 written. `fcvtl` and `fcvtl2` work on registers
        // only; their intrinsics are not stable yet.
        unsafe {
            std::arch::asm!("fcvtl {0:v}.4s, {2:v}.4h", "fcvtl2 {1:v}.4s, {2:v}.8h", out(vreg) low, lateout(vreg) high,
                            in(vreg) vld1q_u8(bytes.as_ptr()), options(pure, nomem, nostack, preserves_flags));
            vst1q_f32(lanes.as_mut_ptr(), low);
            vst1q_f32(lanes.as_mut_ptr().add(STEP / 2), high);
        }
        return lanes;
    }
    std::array::from_fn(|lane| f16_at(&bytes[2 * lane..2 * lane + 2]))
}

struct F16<const FUSED: bool>;
impl<const FUSED: bool> Dense for F16<FUSED> {
    const BYTES: usize = 2;
    const FUSED: bool = FUSED;
    #[inline(always)]
    fn load(bytes: &[u8]) -> [f32; STEP] {
        load_f16s::<FUSED>(bytes)
    }
    #[inline(always)]
    fn load_one(bytes: &[u8]) -> f32 {
        f16_at(bytes)
    }
}

/// Sums `term` over the elements of two values.
#[inline(always)]
fn sum<D: Dense>(a: &[u8], b: &[u8], term: impl Fn(f32, f32, f32) -> f32) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut sums = [[0f32; STEP]; LANES / STEP];
    let block = LANES * D::BYTES;
    let step = STEP * D::BYTES;
    let (mut a, mut b) = (a.chunks_exact(block), b.chunks_exact(block));
    for (a, b) in a.by_ref().zip(b.by_ref()) {
        for (at, sums) in sums.iter_mut().enumerate() {
            let (x, y) = (D::load(&a[at * step..]), D::load(&b[at * step..]));
            for lane in 0..STEP {
                sums[lane] = term(x[lane], y[lane], sums[lane]);
            }
        }
    }
    let (mut a, mut b) = (a.remainder().chunks_exact(step), b.remainder().chunks_exact(step));
    for ((a, b), sums) in a.by_ref().zip(b.by_ref()).zip(&mut sums) {
        let (x, y) = (D::load(a), D::load(b));
        for lane in 0..STEP {
            sums[lane] = term(x[lane], y[lane], sums[lane]);
        }
    }
    let mut total = 0f32;
    for (a, b) in a.remainder().chunks_exact(D::BYTES).zip(b.remainder().chunks_exact(D::BYTES)) {
        total = term(D::load_one(a), D::load_one(b), total);
    }
    let mut lanes = [0f32; STEP];
    for sums in sums {
        for lane in 0..STEP {
            lanes[lane] += sums[lane];
        }
    }
    lanes.iter().sum::<f32>() + total
}

#[inline(always)]
fn l2<D: Dense>(a: &[u8], b: &[u8]) -> f32 {
    ordered(sum::<D>(a, b, |x, y, sum| {
        let difference = x - y;
        D::mul_add(difference, difference, sum)
    }))
}

#[inline(always)]
fn inner_product<D: Dense>(a: &[u8], b: &[u8]) -> f32 {
    ordered(-sum::<D>(a, b, |x, y, sum| D::mul_add(x, y, sum)))
}

#[inline(always)]
fn l1<D: Dense>(a: &[u8], b: &[u8]) -> f32 {
    ordered(sum::<D>(a, b, |x, y, sum| sum + (x - y).abs()))
}

for_each_level!(f32_l2, l2, F32<false>, F32<true>);
for_each_level!(f32_inner_product, inner_product, F32<false>, F32<true>);
for_each_level!(f32_l1, l1, F32<false>, F32<true>);
for_each_level!(f16_l2, l2, F16<false>, F16<true>);
for_each_level!(f16_inner_product, inner_product, F16<false>, F16<true>);
for_each_level!(f16_l1, l1, F16<false>, F16<true>);

/// Decodes a vector of `out.len()` dimensions; of a sparse one, the dimensions below `out.len()`.
///
/// # Panics
/// If a dense vector is shorter than `out`, or the value is a bit string.
pub fn decode(elements: Elements, vector: &[u8], out: &mut [f32]) {
    match elements {
        Elements::F32 => {
            let (numbers, _) = vector[..4 * out.len()].as_chunks();
            out.iter_mut().zip(numbers).for_each(|(out, &bytes)| *out = f32::from_le_bytes(bytes));
        }
        Elements::F16 => f16_decoder(Level::current())(vector, out),
        Elements::Sparse => {
            out.fill(0.0);
            for (dim, number) in sparse::entries(vector) {
                if let Some(out) = out.get_mut(dim as usize) {
                    *out = number;
                }
            }
        }
        Elements::Bits => panic!("not a vector"),
    }
}

pub(crate) fn f16_decoder(level: Level) -> fn(&[u8], &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn fused(vector: &[u8], out: &mut [f32]) {
            decode_body::<F16<true>>(vector, out);
        }
        if level >= Level::Avx2 {
            // SAFETY: the level includes F16C.
            return |vector, out| unsafe { fused(vector, out) };
        }
    }
    #[cfg(target_arch = "aarch64")]
    if level != Level::Portable {
        return decode_body::<F16<true>>;
    }
    let _ = level;
    decode_body::<F16<false>>
}

#[inline(always)]
fn decode_body<D: Dense>(vector: &[u8], out: &mut [f32]) {
    let vector = &vector[..D::BYTES * out.len()];
    let mut steps = out.chunks_exact_mut(STEP);
    let mut bytes = vector.chunks_exact(D::BYTES * STEP);
    for (out, bytes) in steps.by_ref().zip(bytes.by_ref()) {
        out.copy_from_slice(&D::load(bytes));
    }
    for (out, bytes) in steps.into_remainder().iter_mut().zip(bytes.remainder().chunks_exact(D::BYTES)) {
        *out = D::load_one(bytes);
    }
}
