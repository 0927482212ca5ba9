//! Sparse vectors: a merge of two ascending index lists.

use std::cmp::Ordering;

use crate::ordered;

/// A sparse value taken apart; a malformed one reads as empty.
struct Sparse<'a> {
    indices: &'a [u8],
    values: &'a [u8],
}

impl<'a> Sparse<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        let empty = Self { indices: &[], values: &[] };
        let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return empty };
        match (u32::from_le_bytes(*head) as usize).checked_mul(4) {
            Some(len) if rest.len() == 2 * len => Self { indices: &rest[..len], values: &rest[len..] },
            _ => empty,
        }
    }

    fn len(&self) -> usize {
        self.indices.len() / 4
    }

    fn index(&self, at: usize) -> u32 {
        let at = 4 * at;
        u32::from_le_bytes([self.indices[at], self.indices[at + 1], self.indices[at + 2], self.indices[at + 3]])
    }

    fn value(&self, at: usize) -> f32 {
        let at = 4 * at;
        f32::from_le_bytes([self.values[at], self.values[at + 1], self.values[at + 2], self.values[at + 3]])
    }
}

/// Sums `term` over all dimensions where either value is not zero.
fn sum(a: &[u8], b: &[u8], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (a, b) = (Sparse::parse(a), Sparse::parse(b));
    let (mut i, mut j, mut total) = (0, 0, 0f32);
    while i < a.len() && j < b.len() {
        match a.index(i).cmp(&b.index(j)) {
            Ordering::Less => {
                total += term(a.value(i), 0.0);
                i += 1;
            }
            Ordering::Greater => {
                total += term(0.0, b.value(j));
                j += 1;
            }
            Ordering::Equal => {
                total += term(a.value(i), b.value(j));
                i += 1;
                j += 1;
            }
        }
    }
    total += (i..a.len()).map(|i| term(a.value(i), 0.0)).sum::<f32>();
    total + (j..b.len()).map(|j| term(0.0, b.value(j))).sum::<f32>()
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
