use std::iter::Sum;
use std::ops::{Add, AddAssign};

use super::{Sparse, norm};
use crate::{Metric, ordered};

/// A sparse value to compare with many others: prepared so that the entries of the others are looked up in it.
///
/// Its distances equal those of the kernels up to rounding.
#[derive(Default)]
pub struct SparseQuery {
    dims: u32,
    dense: Dense,
    /// Used instead of `dense` if there are more than [`Dense::MAX_DIMS`] dimensions.
    hashed: Hashed,
    metric: Option<Metric>,
    /// The value's [`norm`].
    own: f64,
}

impl SparseQuery {
    /// Replaces the value by one of `dims` dimensions, for distances of `metric`.
    pub fn set(&mut self, metric: Metric, dims: u32, value: &[u8]) {
        let value = Sparse::parse(value);
        (self.metric, self.dims) = (Some(metric), dims);
        if dims <= Dense::MAX_DIMS {
            self.dense.set(dims, value);
        } else {
            self.hashed.set(value);
        }
        self.own = norm(metric, value.entries());
    }

    /// The distance to another value.
    #[must_use]
    pub fn distance(&self, other: &[u8]) -> f32 {
        if self.dims <= Dense::MAX_DIMS {
            self.distance_by(|dimension| self.dense.number(dimension), other)
        } else {
            self.distance_by(|dimension| self.hashed.number(dimension), other)
        }
    }

    #[inline(always)]
    fn distance_by(&self, number: impl Fn(u32) -> f32, other: &[u8]) -> f32 {
        ordered(match self.metric {
            // y (y - 2x) is (x - y)² - x².
            Some(Metric::L2) => (self.own + sum(number, other, |x: f64, y| y * (y - 2.0 * x))) as f32,
            Some(Metric::L1) => (self.own + sum(number, other, |x: f64, y| (x - y).abs() - x.abs())) as f32,
            _ => -sum(number, other, |x: f32, y| x * y),
        })
    }
}

/// Sums `term` over the dimensions where the other value is not zero; with several accumulators, to hide the latency of additions.
/// `number` is the query's number in a dimension.
#[inline(always)]
fn sum<T>(number: impl Fn(u32) -> f32, other: &[u8], term: impl Fn(T, T) -> T) -> T
where
    T: From<f32> + Copy + Default + AddAssign + Add<Output = T> + Sum,
{
    const SUMS: usize = 4;
    let other = Sparse::parse(other);
    let term = |index: &[u8; 4], of_other: &[u8; 4]| {
        term(number(u32::from_le_bytes(*index)).into(), f32::from_le_bytes(*of_other).into())
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

/// The numbers in an array by dimension.
#[derive(Default)]
struct Dense {
    /// Zero where the value has no entry.
    numbers: Vec<f32>,
    /// Where it has one.
    indices: Vec<u32>,
}

impl Dense {
    /// The most dimensions of such an array, which takes 512 KiB then. A larger one does not stay in the processor's cache.
    const MAX_DIMS: u32 = 1 << 17;

    fn set(&mut self, dims: u32, value: Sparse<'_>) {
        self.indices.drain(..).for_each(|index| self.numbers[index as usize] = 0.0);
        self.numbers.resize(dims as usize, 0.0);
        for (index, number) in value.entries() {
            if let Some(place) = self.numbers.get_mut(index as usize) {
                *place = number;
                self.indices.push(index);
            }
        }
    }

    #[inline(always)]
    fn number(&self, dimension: u32) -> f32 {
        self.numbers.get(dimension as usize).copied().unwrap_or(0.0)
    }
}

/// The numbers in a hash table by dimension: buckets of four, all of which a lookup compares without a branch.
#[derive(Default)]
struct Hashed {
    /// A power of two of them, at least one for each entry.
    buckets: Vec<Bucket>,
    /// A hash shifted right by this is the number of a bucket.
    shift: u32,
    /// The entries for which their bucket has no room, ascending.
    spilled: Vec<(u32, f32)>,
}

#[derive(Clone, Copy)]
#[repr(align(32))]
struct Bucket {
    indices: [u32; Self::ROOM],
    numbers: [f32; Self::ROOM],
}

impl Bucket {
    const ROOM: usize = 4;
    /// The index of a free place; indices are below the billion dimensions of a sparsevec.
    const FREE: u32 = u32::MAX;
    const EMPTY: Self = Self { indices: [Self::FREE; Self::ROOM], numbers: [0.0; Self::ROOM] };
}

impl Hashed {
    fn set(&mut self, value: Sparse<'_>) {
        let buckets = value.indices.len().next_power_of_two().max(2);
        self.shift = u32::BITS - buckets.trailing_zeros();
        self.spilled.clear();
        self.buckets.clear();
        self.buckets.resize(buckets, Bucket::EMPTY);
        for (index, number) in value.entries() {
            let at = self.bucket_of(index);
            let bucket = &mut self.buckets[at];
            match bucket.indices.iter().position(|&other| other == Bucket::FREE) {
                Some(place) => (bucket.indices[place], bucket.numbers[place]) = (index, number),
                None => self.spilled.push((index, number)),
            }
        }
    }

    /// Fibonacci hashing: distributes arithmetic sequences evenly, too.
    #[inline(always)]
    fn bucket_of(&self, dimension: u32) -> usize {
        (dimension.wrapping_mul(0x9E37_79B1) >> self.shift) as usize
    }

    #[inline(always)]
    fn number(&self, dimension: u32) -> f32 {
        let Some(bucket) = self.buckets.get(self.bucket_of(dimension)) else { return 0.0 };
        let mut found = 0;
        for place in 0..Bucket::ROOM {
            let is_here = bucket.indices[place] == dimension;
            found |= bucket.numbers[place].to_bits() & u32::from(is_here).wrapping_neg();
        }
        if bucket.indices[Bucket::ROOM - 1] != Bucket::FREE && found == 0 {
            return self.spilled(dimension);
        }
        f32::from_bits(found)
    }

    #[cold]
    fn spilled(&self, dimension: u32) -> f32 {
        let place = self.spilled.binary_search_by_key(&dimension, |&(index, _)| index);
        place.map_or(0.0, |place| self.spilled[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::SparseQuery;
    use crate::sparse::{inner_product, l1, l2};
    use crate::{Kernel, Metric};

    /// Dimensions of values in an array and in a hash table, alternately.
    const DIMS: [u32; 4] = [10, 1_000_000_000, 1 << 17, (1 << 17) + 1];

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
            for (dims, a) in DIMS.into_iter().flat_map(|dims| values.iter().map(move |a| (dims, a))) {
                query.set(metric, dims, a);
                for b in &values {
                    assert_eq!(query.distance(b), kernel(a, b), "{metric:?}, {dims} dimensions");
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
            for (dims, a) in DIMS.into_iter().flat_map(|dims| values.iter().map(move |a| (dims, a))) {
                query.set(metric, dims, a);
                values.iter().for_each(|b| assert_eq!(query.distance(b), kernel(a, b), "{metric:?}"));
            }
        }
    }

    #[test]
    fn every_entry_of_a_hash_table_is_found() {
        let mut random = fastrand::Rng::with_seed(1);
        // All in one bucket, and spread over many.
        let alike = (0..1_000_000).filter(|&index: &u32| index.wrapping_mul(0x9E37_79B1) >> 16 == 7);
        let scattered = (0..1000).map(|_| random.u32(..1_000_000_000));
        for mut indices in [alike.collect::<Vec<u32>>(), scattered.collect()] {
            indices.sort_unstable();
            indices.dedup();
            assert!(indices.len() > 10);
            let mut query = SparseQuery::default();
            let entries: Vec<_> = indices.iter().zip(1u16..).map(|(&index, number)| (index, number.into())).collect();
            query.set(Metric::InnerProduct, 1_000_000_000, &value(&entries));
            for &(index, number) in &entries {
                let at = |index: u32| query.distance(&value(&[(index, 1.0)]));
                assert_eq!(at(index), -number);
                if !indices.contains(&(index + 1)) {
                    assert_eq!(at(index + 1), 0.0);
                }
            }
        }
    }
}
