//! Sparse vectors: a merge of two ascending index lists.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

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
}

/// The entries of a sparse value as (dimension from 0, number), ascending; none if it is malformed.
pub fn entries(value: &[u8]) -> impl ExactSizeIterator<Item = (u32, f32)> {
    let Sparse { indices, values } = Sparse::parse(value);
    indices.iter().zip(values).map(|(index, number)| (u32::from_le_bytes(*index), f32::from_le_bytes(*number)))
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

/// A sparse value to compare with many others: stored as a dense array, in which the indices of the others are looked up.
///
/// Its distances equal those of the kernels up to rounding.
#[derive(Default)]
pub struct SparseQuery {
    /// By dimension; zero where the value has no entry.
    numbers: Vec<f32>,
    indices: Vec<u32>,
    metric: Option<Metric>,
    /// What the value contributes to every distance: its squared L2 norm or its L1 norm; 0 under inner product. Distances are sums of
    /// this and of differences, most of which cancel out between near values: hence in double precision.
    own: f64,
}

impl SparseQuery {
    /// The most dimensions of such an array, which takes 16 MiB then.
    pub const MAX_DIMS: u32 = 1 << 22;

    /// Replaces the value by one of `dims` dimensions, for distances of `metric`.
    pub fn set(&mut self, metric: Metric, dims: u32, value: &[u8]) {
        self.indices.drain(..).for_each(|index| self.numbers[index as usize] = 0.0);
        self.numbers.resize(dims as usize, 0.0);
        let value = Sparse::parse(value);
        for (index, number) in value.indices.iter().zip(value.values) {
            let (index, number) = (u32::from_le_bytes(*index), f32::from_le_bytes(*number));
            if let Some(place) = self.numbers.get_mut(index as usize) {
                *place = number;
                self.indices.push(index);
            }
        }
        let numbers = self.indices.iter().map(|&index| f64::from(self.numbers[index as usize]));
        self.own = match metric {
            Metric::L2 => numbers.map(|x| x * x).sum(),
            Metric::L1 => numbers.map(f64::abs).sum(),
            _ => 0.0,
        };
        self.metric = Some(metric);
    }

    /// The distance to another value.
    #[must_use]
    pub fn distance(&self, other: &[u8]) -> f32 {
        ordered(match self.metric {
            // y (y - 2x) is (x - y)² - x².
            Some(Metric::L2) => (self.own + self.sum(other, |x: f64, y| y * (y - 2.0 * x))) as f32,
            Some(Metric::L1) => (self.own + self.sum(other, |x: f64, y| (x - y).abs() - x.abs())) as f32,
            _ => -self.sum(other, |x: f32, y| x * y),
        })
    }

    /// Sums `term` over the dimensions where the other value is not zero; with several accumulators, to hide the latency of
    /// additions.
    #[inline(always)]
    fn sum<T>(&self, other: &[u8], term: impl Fn(T, T) -> T) -> T
    where
        T: From<f32> + Copy + Default + AddAssign + Add<Output = T> + Sum,
    {
        const SUMS: usize = 4;
        let other = Sparse::parse(other);
        let term = |index: &[u8; 4], number: &[u8; 4]| {
            let own = self.numbers.get(u32::from_le_bytes(*index) as usize).copied().unwrap_or(0.0);
            term(own.into(), f32::from_le_bytes(*number).into())
        };
        let (indices, index_rest) = other.indices.as_chunks::<SUMS>();
        let (numbers, number_rest) = other.values.as_chunks::<SUMS>();
        let mut sums = [T::default(); SUMS];
        for (indices, numbers) in indices.iter().zip(numbers) {
            for lane in 0..SUMS {
                sums[lane] += term(&indices[lane], &numbers[lane]);
            }
        }
        let rest: T = index_rest.iter().zip(number_rest).map(|(index, number)| term(index, number)).sum();
        sums.into_iter().sum::<T>() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::{SparseQuery, inner_product, l1, l2};
    use crate::{Kernel, Metric};

    fn value(entries: &[(u32, f32)]) -> Vec<u8> {
        let count = (entries.len() as u32).to_le_bytes().to_vec();
        let indices = entries.iter().flat_map(|(index, _)| index.to_le_bytes());
        count.into_iter().chain(indices).chain(entries.iter().flat_map(|(_, x)| x.to_le_bytes())).collect()
    }

    #[test]
    fn a_query_has_the_distances_of_the_kernels() {
        let values = [
            value(&[]),
            value(&[(0, 1.0), (3, -2.0), (9, 0.5)]),
            value(&[(3, 4.0), (4, 1.0), (5, 2.0), (6, 3.0), (8, -1.0)]),
            value(&[
                (0, 1.0),
                (1, 2.0),
                (2, 3.0),
                (3, 4.0),
                (4, 5.0),
                (5, 6.0),
                (6, 7.0),
                (7, 8.0),
                (8, 9.0),
                (9, 1.0),
            ]),
        ];
        let mut query = SparseQuery::default();
        let metrics: [(Metric, Kernel); 3] =
            [(Metric::L2, l2), (Metric::InnerProduct, inner_product), (Metric::L1, l1)];
        for (metric, kernel) in metrics {
            for a in &values {
                query.set(metric, 10, a);
                for b in &values {
                    assert_eq!(query.distance(b), kernel(a, b), "{metric:?}");
                }
            }
        }
    }

    #[test]
    fn near_values_with_a_large_coordinate_are_resolved() {
        let values = [
            value(&[(0, 10_000.0)]),
            value(&[(0, 10_000.0), (1, 1.0)]),
            value(&[(0, 10_000.0), (1, 2.0)]),
            value(&[(0, 10_000.0), (1, 0.25)]),
        ];
        let mut query = SparseQuery::default();
        for (metric, kernel) in [(Metric::L2, l2 as Kernel), (Metric::L1, l1)] {
            for a in &values {
                query.set(metric, 10, a);
                values.iter().for_each(|b| assert_eq!(query.distance(b), kernel(a, b), "{metric:?}"));
            }
        }
    }
}
