//! Sparse vectors: a merge of two ascending index lists.

mod query;

pub use query::SparseQuery;

use crate::{Metric, ordered};

/// The parts of a sparse value; a malformed one reads as empty.
#[derive(Clone, Copy, Default)]
struct Sparse<'a> {
    indices: &'a [[u8; 4]],
    values: &'a [[u8; 4]],
}

impl<'a> Sparse<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Self::default() };
        match (u32::from_le_bytes(*head) as usize).checked_mul(4) {
            Some(len) if rest.len() == 2 * len => {
                let (indices, values) = rest.split_at(len);
                Self { indices: indices.as_chunks().0, values: values.as_chunks().0 }
            }
            _ => Self::default(),
        }
    }

    fn entries(self) -> impl ExactSizeIterator<Item = (u32, f32)> {
        let number = |(index, number): (&[u8; 4], &[u8; 4])| (u32::from_le_bytes(*index), f32::from_le_bytes(*number));
        self.indices.iter().zip(self.values).map(number)
    }
}

/// The entries of a sparse value as (dimension from 0, number), ascending; none if it is malformed.
pub fn entries(value: &[u8]) -> impl ExactSizeIterator<Item = (u32, f32)> {
    Sparse::parse(value).entries()
}

/// The term of a distance that depends on one value alone: |x|² for L2, the sum of |x| for L1, 0 for other metrics. In
/// f64, because the rest of the distance cancels most of it if the values are near.
pub fn norm(metric: Metric, entries: impl Iterator<Item = (u32, f32)>) -> f64 {
    let numbers = entries.map(|(_, number)| f64::from(number));
    match metric {
        Metric::L2 => numbers.map(|x| x * x).sum(),
        Metric::L1 => numbers.map(f64::abs).sum(),
        _ => 0.0,
    }
}

/// Sums `term` over all dimensions where either value is not zero.
///
/// The merge has no branches, as comparisons of the two indices are unpredictable: both sides are loaded, and the one with the
/// greater index counts as zero.
#[inline(always)]
fn sum(a: &[u8], b: &[u8], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (a, b) = (Sparse::parse(a), Sparse::parse(b));
    let (mut i, mut j, mut total) = (0, 0, 0f32);
    while i < a.indices.len() && j < b.indices.len() {
        let (left, right) = (u32::from_le_bytes(a.indices[i]), u32::from_le_bytes(b.indices[j]));
        let (of_left, of_right) = (left <= right, right <= left);
        let keep =
            |there: bool, number: [u8; 4]| f32::from_bits(u32::from_le_bytes(number) & u32::from(there).wrapping_neg());
        total += term(keep(of_left, a.values[i]), keep(of_right, b.values[j]));
        i += usize::from(of_left);
        j += usize::from(of_right);
    }
    total += a.values[i..].iter().map(|x| term(f32::from_le_bytes(*x), 0.0)).sum::<f32>();
    total + b.values[j..].iter().map(|y| term(0.0, f32::from_le_bytes(*y))).sum::<f32>()
}

pub(crate) fn l2(a: &[u8], b: &[u8]) -> f32 {
    ordered(sum(a, b, |x, y| (x - y) * (x - y)))
}

pub(crate) fn inner_product(a: &[u8], b: &[u8]) -> f32 {
    ordered(-sum(a, b, |x, y| x * y))
}

pub(crate) fn l1(a: &[u8], b: &[u8]) -> f32 {
    ordered(sum(a, b, |x, y| (x - y).abs()))
}
