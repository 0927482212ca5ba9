//! Bit strings: exact integer counts, eight bytes at a time.

use crate::level::for_each_level;

/// Sums `count` over the 64-bit words of two values; a last partial word is padded with zero bits.
#[inline(always)]
fn sum(a: &[u8], b: &[u8], count: impl Fn(u64, u64) -> u32) -> u32 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let (mut a, mut b) = (a.chunks_exact(8), b.chunks_exact(8));
    let whole: u32 = a.by_ref().zip(b.by_ref()).map(|(a, b)| count(word(a), word(b))).sum();
    whole + count(word(a.remainder()), word(b.remainder()))
}

/// The bodies load nothing special; the type satisfies the macro.
trait Words {}
struct Plain;
impl Words for Plain {}

#[inline(always)]
fn hamming_body<W: Words>(a: &[u8], b: &[u8]) -> f32 {
    sum(a, b, |a, b| (a ^ b).count_ones()) as f32
}

#[inline(always)]
fn jaccard_body<W: Words>(a: &[u8], b: &[u8]) -> f32 {
    let shared = sum(a, b, |a, b| (a & b).count_ones());
    if shared == 0 {
        return 1.0;
    }
    let either = sum(a, b, |a, b| (a | b).count_ones());
    (1.0 - f64::from(shared) / f64::from(either)) as f32
}

for_each_level!(hamming, hamming_body, Plain, Plain);
for_each_level!(jaccard, jaccard_body, Plain, Plain);
