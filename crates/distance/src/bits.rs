//! Bit strings: integer counts, hence exact at every level.

use crate::{Kernel, Level};

/// How many bits differ.
pub(crate) fn hamming(level: Level) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    match level {
        // SAFETY: the level includes AVX-512 BW, and VPOPCNTDQ was found.
        level if counts_words(level) => return |a, b| unsafe { x64::hamming(a, b) },
        // SAFETY: these levels include POPCNT.
        Level::Avx2 | Level::Avx512 | Level::Vnni | Level::Amx => return |a, b| unsafe { x64::hamming_by_words(a, b) },
        _ => {}
    }
    let _ = level;
    hamming_by_words
}

/// 1 - (bits set in both) / (bits set in either); 1 where no bit is set in both.
pub(crate) fn jaccard(level: Level) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    match level {
        // SAFETY: the level includes AVX-512 BW, and VPOPCNTDQ was found.
        level if counts_words(level) => return |a, b| unsafe { x64::jaccard(a, b) },
        // SAFETY: these levels include POPCNT.
        Level::Avx2 | Level::Avx512 | Level::Vnni | Level::Amx => return |a, b| unsafe { x64::jaccard_by_words(a, b) },
        _ => {}
    }
    let _ = level;
    jaccard_by_words
}

/// Sums `count` over the 64-bit words of two values; a last partial word is padded with zero bits.
#[inline(always)]
fn sum(a: &[u8], b: &[u8], count: impl Fn(u64, u64) -> u32) -> u32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let whole: u32 = a.iter().zip(b).map(|(a, b)| count(u64::from_le_bytes(*a), u64::from_le_bytes(*b))).sum();
    whole + count(last_word(a_rest), last_word(b_rest))
}

/// The word of the last bytes of a value, padded with zero bits.
#[inline(always)]
pub(crate) fn last_word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[inline(always)]
fn hamming_by_words(a: &[u8], b: &[u8]) -> f32 {
    sum(a, b, |a, b| (a ^ b).count_ones()) as f32
}

#[inline(always)]
fn jaccard_by_words(a: &[u8], b: &[u8]) -> f32 {
    ratio(sum(a, b, |a, b| (a & b).count_ones()).into(), || sum(a, b, |a, b| (a | b).count_ones()).into())
}

#[inline(always)]
fn ratio(shared: u64, either: impl FnOnce() -> u64) -> f32 {
    if shared == 0 { 1.0 } else { (1.0 - shared as f64 / either() as f64) as f32 }
}

/// Whether AVX-512 counts the bits of words: some processors of these levels lack VPOPCNTDQ.
#[cfg(target_arch = "x86_64")]
pub(crate) fn counts_words(level: Level) -> bool {
    level >= Level::Avx512 && is_x86_feature_detected!("avx512vpopcntdq")
}

#[cfg(target_arch = "x86_64")]
mod x64 {
    use std::arch::x86_64::*;

    /// Bytes of a register.
    const WIDTH: usize = 64;

    #[target_feature(enable = "popcnt")]
    pub(super) fn hamming_by_words(a: &[u8], b: &[u8]) -> f32 {
        super::hamming_by_words(a, b)
    }

    #[target_feature(enable = "popcnt")]
    pub(super) fn jaccard_by_words(a: &[u8], b: &[u8]) -> f32 {
        super::jaccard_by_words(a, b)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
    pub(super) fn hamming(a: &[u8], b: &[u8]) -> f32 {
        let mut sum = _mm512_setzero_si512();
        for_each_register(a, b, |a, b| {
            sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_xor_si512(a, b)));
        });
        _mm512_reduce_add_epi64(sum) as f32
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
    pub(super) fn jaccard(a: &[u8], b: &[u8]) -> f32 {
        let (mut shared, mut either) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for_each_register(a, b, |a, b| {
            shared = _mm512_add_epi64(shared, _mm512_popcnt_epi64(_mm512_and_si512(a, b)));
            either = _mm512_add_epi64(either, _mm512_popcnt_epi64(_mm512_or_si512(a, b)));
        });
        super::ratio(_mm512_reduce_add_epi64(shared) as u64, || _mm512_reduce_add_epi64(either) as u64)
    }

    /// Visits both values register by register, the last one padded with zeros.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn for_each_register(a: &[u8], b: &[u8], mut visit: impl FnMut(__m512i, __m512i)) {
        let len = a.len().min(b.len());
        let mut at = 0;
        while at < len {
            let left = len - at;
            let mask = if left >= WIDTH { !0 } else { (1u64 << left) - 1 };
            // SAFETY: only bytes below `len` are read.
            let (a, b) = unsafe {
                (
                    _mm512_maskz_loadu_epi8(mask, a.as_ptr().add(at).cast()),
                    _mm512_maskz_loadu_epi8(mask, b.as_ptr().add(at).cast()),
                )
            };
            visit(a, b);
            at += WIDTH;
        }
    }
}
