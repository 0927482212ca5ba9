//! Inverted lists of a group of sparse values: for each dimension, the values that are not zero there.
//!
//! Two sparse values mostly share a few of their dimensions. The cost of merging their indices, or looking up each, is proportional to all
//! indices of both; by inverted lists a pair costs only the dimensions it shares. Sums are in f64, in which products of f32 are
//! exact: `|a|² + |b|² - 2ab` does not lose the distance of near-identical values.

use distance::{Metric, sparse_norm};

use super::{Measure, Space};

/// A free place of the table: no dimension has this number.
const FREE: u32 = u32::MAX;

/// The lists of a group. Keeps its memory from one group to the next.
#[derive(Default)]
pub(crate) struct Inverted {
    metric: Option<Metric>,
    /// A hash table (open addressing): dimensions and the numbers of their lists.
    table: Vec<(u32, u32)>,
    /// Where each list starts; one more for the end of the last.
    starts: Vec<u32>,
    /// The entries of each list: the position of a value and its coordinate, in ascending order of positions.
    entries: Vec<(u32, f32)>,
    /// The entries of each value: the number of a list and the coordinate.
    own: Vec<(u32, f32)>,
    /// Where each value's entries in `own` start; one more for the end of the last.
    own_starts: Vec<u32>,
    /// The norm that a value adds to all its distances.
    norms: Vec<f64>,
    /// Under inner product, the augmentation coordinates; else none.
    extra: Vec<f32>,
    /// For each list, where the entries after the current value start.
    behind: Vec<u32>,
    sums: Vec<f64>,
}

impl Inverted {
    /// Takes the values of elements, with their extra coordinates.
    pub(crate) fn fill(&mut self, space: Space<'_>, elements: &[u32]) {
        self.fill_values(space.measure, elements.iter().map(|&element| space.value(element)));
        self.extra = space.extra_coordinates(elements);
    }

    /// Takes values that may not belong to elements, such as queries.
    pub(crate) fn fill_values<'v>(&mut self, measure: Measure, values: impl Iterator<Item = &'v [u8]> + Clone) {
        let total: usize = values.clone().map(|value| distance::sparse_entries(value).len()).sum();
        self.metric = Some(measure.metric);
        self.table.clear();
        self.table.resize((2 * total).next_power_of_two().max(2), (FREE, 0));
        self.extra.clear();
        self.own.clear();
        self.own_starts.clear();
        self.norms.clear();
        // At first, `starts` has the length of each list.
        self.starts.clear();
        for value in values {
            self.own_starts.push(self.own.len() as u32);
            for (dim, number) in distance::sparse_entries(value) {
                let lists = self.starts.len() as u32;
                let place = self.place(dim);
                if self.table[place].0 == FREE {
                    self.table[place] = (dim, lists);
                    self.starts.push(0);
                }
                let list = self.table[place].1;
                self.starts[list as usize] += 1;
                self.own.push((list, number));
            }
            self.norms.push(sparse_norm(measure.metric, distance::sparse_entries(value)));
        }
        self.own_starts.push(self.own.len() as u32);
        let mut start = 0;
        self.starts.iter_mut().for_each(|list| (*list, start) = (start, start + *list));
        self.starts.push(start);
        self.entries.clear();
        self.entries.resize(self.own.len(), (0, 0.0));
        let mut next = self.starts.clone();
        for at in 0..self.norms.len() {
            for &(list, number) in &self.own[range(&self.own_starts, at)] {
                let place = &mut next[list as usize];
                self.entries[*place as usize] = (at as u32, number);
                *place += 1;
            }
        }
    }

    /// Switches to Euclidean distances of the same values, without augmentation coordinates.
    pub(crate) fn turn_euclidean(&mut self) {
        self.metric = Some(Metric::L2);
        self.extra.clear();
        for (at, of_value) in self.norms.iter_mut().enumerate() {
            *of_value = sparse_norm(Metric::L2, self.own[range(&self.own_starts, at)].iter().copied());
        }
    }

    /// Where a dimension is in the table, or would be.
    fn place(&self, dim: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut place = (u64::from(dim).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.table[place].0 != dim && self.table[place].0 != FREE {
            place = (place + 1) & mask;
        }
        place
    }

    /// The number of entries of all values.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The sum of the dimensions that each pair shares: the cost of [`Self::all_pairs`].
    pub(crate) fn shared(&self) -> usize {
        self.starts.windows(2).map(|list| (list[1] - list[0]) as usize).map(|len| len * len / 2).sum()
    }

    /// Calls `take` with the positions of all pairs, the lesser one first, and their distance.
    pub(crate) fn all_pairs(&mut self, mut take: impl FnMut(usize, usize, f32)) {
        let Self { metric, starts, entries, own, own_starts, norms, extra, behind, sums, .. } = self;
        let Some(metric) = *metric else { return };
        behind.clear();
        behind.extend_from_slice(starts);
        sums.clear();
        sums.resize(norms.len(), 0.0);
        for at in 0..norms.len() {
            for &(list, number) in &own[range(own_starts, at)] {
                let list = list as usize;
                behind[list] += 1;
                add(metric, number, &entries[behind[list] as usize..starts[list + 1] as usize], sums);
            }
            for (other, sum) in sums.iter_mut().enumerate().skip(at + 1) {
                let shared = std::mem::take(sum) - product(extra, at, other);
                take(at, other, finish(norms[at] + norms[other] + shared));
            }
        }
    }

    /// The distances of another element to all values of the group, in order.
    pub(crate) fn distances<'s>(
        &'s self,
        space: Space<'_>,
        element: u32,
        sums: &'s mut Vec<f64>,
    ) -> impl Iterator<Item = f32> + use<'s> {
        let coordinate = space.extra_coordinate(element).unwrap_or_default();
        self.distances_of(space.value(element), coordinate, sums)
    }

    /// The distances of a value to all values of the group, in order. `coordinate` is its augmentation coordinate, or 0.
    pub(crate) fn distances_of<'s>(
        &'s self,
        value: &[u8],
        coordinate: f32,
        sums: &'s mut Vec<f64>,
    ) -> impl Iterator<Item = f32> + use<'s> {
        sums.clear();
        sums.resize(self.norms.len(), 0.0);
        let metric = self.metric.unwrap_or(Metric::L2);
        for (dim, number) in distance::sparse_entries(value) {
            let (known, list) = self.table[self.place(dim)];
            if known == dim {
                add(metric, number, &self.entries[range(&self.starts, list as usize)], sums);
            }
        }
        let own = sparse_norm(metric, distance::sparse_entries(value));
        sums.iter().zip(&self.norms).enumerate().map(move |(at, (shared, norm))| {
            let extra = self.extra.get(at).map_or(0.0, |other| f64::from(coordinate) * f64::from(*other));
            finish(own + norm + shared - extra)
        })
    }
}

/// The range of the entries of the list or value at a position.
fn range(starts: &[u32], at: usize) -> std::ops::Range<usize> {
    starts[at] as usize..starts[at + 1] as usize
}

/// Adds the terms of one dimension to `sums`: of a value's coordinate with each entry of the dimension's list.
#[inline]
fn add(metric: Metric, number: f32, entries: &[(u32, f32)], sums: &mut [f64]) {
    let x = f64::from(number);
    let each = entries.iter().map(|&(at, other)| (at as usize, f64::from(other)));
    match metric {
        Metric::L2 => each.for_each(|(at, y)| sums[at] -= 2.0 * x * y),
        Metric::L1 => each.for_each(|(at, y)| sums[at] += (x - y).abs() - x.abs() - y.abs()),
        _ => each.for_each(|(at, y)| sums[at] -= x * y),
    }
}

fn product(extra: &[f32], a: usize, b: usize) -> f64 {
    if extra.is_empty() { 0.0 } else { f64::from(extra[a]) * f64::from(extra[b]) }
}

/// The distance in f32; never NaN, as with kernels.
fn finish(distance: f64) -> f32 {
    distance::ordered(distance as f32)
}

#[cfg(test)]
mod tests {
    use distance::{Elements, Metric};

    use super::Inverted;
    use crate::random::Random;
    use crate::space::Measure;
    use crate::testing::sparse;

    /// Values of about 20 of 90 dimensions, the last of them far away.
    fn values(count: usize) -> Vec<Vec<u8>> {
        let mut random = Random::new(7);
        let mut draw = || {
            let dims = (0..90).filter(|_| random.below(90) < 20).collect::<Vec<u32>>();
            let entry = |&dim: &u32| (if dim == 89 { 999_999_999 } else { dim }, random.unit() as f32 - 0.4);
            sparse(&dims.iter().map(entry).collect::<Vec<_>>())
        };
        let mut values: Vec<Vec<u8>> = (0..count).map(|_| draw()).collect();
        values.push(sparse(&[]));
        values
    }

    #[test]
    fn distances_are_those_of_the_kernels() {
        let values = values(40);
        for metric in [Metric::L2, Metric::InnerProduct, Metric::L1] {
            let measure = Measure::new(Elements::Sparse, metric, 1_000_000_000).unwrap();
            let close = |a: f32, b: f32| assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{metric:?} {a} {b}");
            let (mut inverted, mut sums) = (Inverted::default(), Vec::new());
            // The memory of a larger group is used again.
            inverted.fill_values(measure, values.iter().map(Vec::as_slice));
            let group = &values[10..];
            inverted.fill_values(measure, group.iter().map(Vec::as_slice));
            let mut pairs = 0;
            inverted.all_pairs(|a, b, distance| {
                assert!(a < b);
                pairs += 1;
                close(distance, (measure.kernel)(&group[a], &group[b]));
            });
            assert_eq!(pairs, group.len() * (group.len() - 1) / 2);
            for query in &values {
                let distances: Vec<f32> = inverted.distances_of(query, 0.0, &mut sums).collect();
                assert_eq!(distances.len(), group.len());
                distances
                    .iter()
                    .zip(group)
                    .for_each(|(&distance, other)| close(distance, (measure.kernel)(query, other)));
            }
            let l2 = Measure::new(Elements::Sparse, Metric::L2, 1_000_000_000).unwrap();
            inverted.turn_euclidean();
            inverted.all_pairs(|a, b, distance| close(distance, (l2.kernel)(&group[a], &group[b])));
        }
    }

    #[test]
    fn near_identical_values_are_resolved() {
        // Squares of 1e6, of which differences of 1e-4 would be lost in f32.
        let values: Vec<Vec<u8>> =
            [0.0, 1.0, 2.0, 4.0].map(|step: f32| sparse(&[(3, 1000.0), (8, 0.01 * step)])).to_vec();
        let measure = Measure::new(Elements::Sparse, Metric::L2, 10).unwrap();
        let mut inverted = Inverted::default();
        inverted.fill_values(measure, values.iter().map(Vec::as_slice));
        inverted.all_pairs(|a, b, distance| {
            let exact = (measure.kernel)(&values[a], &values[b]);
            assert!((distance - exact).abs() < 0.01 * exact, "{a} {b} {distance} {exact}");
        });
    }
}
