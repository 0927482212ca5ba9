//! Parallel counting sort of items into groups. It is stable: each group has its items in their order, for any number of threads.

use rayon::prelude::*;

use crate::BuildError;
use crate::tasks::Section;

/// A task takes at least `LEAST` items, and there are at most `MOST` tasks, since each has a counter for every group.
const LEAST: usize = 1 << 14;
const MOST: usize = 256;

/// The items of all groups, one group after the other.
pub(crate) struct Grouped {
    starts: Vec<usize>,
    items: Vec<u32>,
}

impl Grouped {
    /// Groups `len` items into `groups` groups. `groups_of` returns the groups of an item, of which values outside `0..groups` are ignored;
    /// `item` returns what the groups store for it.
    pub(crate) fn new<'g>(
        section: Section<'_>,
        (len, groups): (usize, usize),
        groups_of: impl Fn(usize) -> &'g [u32] + Sync + Send,
        item: impl Fn(usize) -> u32 + Sync + Send,
    ) -> Result<Self, BuildError> {
        let step = len.div_ceil(MOST).max(LEAST);
        let tasks = len.div_ceil(step);
        let items_of = |task: usize| task * step..((task + 1) * step).min(len);
        let counts: Vec<Vec<usize>> = section.map((0..tasks).into_par_iter(), |task| {
            let mut counts = vec![0; groups];
            for group in items_of(task).flat_map(&groups_of) {
                counts.get_mut(*group as usize).into_iter().for_each(|count| *count += 1);
            }
            Ok(counts)
        })?;
        let mut starts = vec![0];
        for group in 0..groups {
            starts.push(starts[group] + counts.iter().map(|counts| counts[group]).sum::<usize>());
        }
        let mut items = vec![0; starts[groups]];
        // Each task has its own slice of every group.
        let mut slices: Vec<Vec<&mut [u32]>> = counts.iter().map(|_| Vec::with_capacity(groups)).collect();
        let mut rest = items.as_mut_slice();
        for group in 0..groups {
            for (counts, slices) in counts.iter().zip(&mut slices) {
                let (slice, others) = std::mem::take(&mut rest).split_at_mut(counts[group]);
                slices.push(slice);
                rest = others;
            }
        }
        section.for_each(slices.into_par_iter().enumerate(), |(task, mut slices)| {
            for at in items_of(task) {
                for &group in groups_of(at) {
                    let Some(slice) = slices.get_mut(group as usize) else { continue };
                    let Some((next, others)) = std::mem::take(slice).split_first_mut() else { continue };
                    *next = item(at);
                    *slice = others;
                }
            }
            Ok(())
        })?;
        Ok(Self { starts, items })
    }

    pub(crate) fn group(&self, group: usize) -> &[u32] {
        &self.items[self.starts[group]..self.starts[group + 1]]
    }

    /// The items of each group, whose order may be changed.
    pub(crate) fn groups_mut(&mut self) -> Vec<&mut [u32]> {
        let mut rest = self.items.as_mut_slice();
        let of_group = |bounds: &[usize]| rest.split_off_mut(..bounds[1] - bounds[0]).unwrap_or_default();
        self.starts.windows(2).map(of_group).collect()
    }

    /// The items of all groups.
    pub(crate) fn into_items(self) -> Vec<u32> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::{Grouped, LEAST};
    use crate::testing::pool;
    use crate::{Control, Pool};

    #[test]
    fn groups_have_their_items_in_order() {
        let len = 3 * LEAST + 5;
        // Each is in two groups, or in one where the other does not exist.
        let of: Vec<[u32; 2]> = (0..len as u32).map(|at| [at * 7 % 5, 3 + at * 11 % 4]).collect();
        let control = Control::default();
        let make = || Grouped::new(control.section("groups"), (len, 5), |at| &of[at], |at| 10 * at as u32).unwrap();
        let (one, two) = (pool().run(make), Pool::new(2).unwrap().run(make));
        for group in 0..5 {
            let expected: Vec<u32> = (0..len)
                .flat_map(|at| of[at].map(|of| (at, of)))
                .filter(|(_, of)| *of == group as u32)
                .map(|(at, _)| 10 * at as u32)
                .collect();
            assert_eq!(one.group(group), expected);
            assert_eq!(two.group(group), expected);
        }
        assert_eq!(one.into_items(), two.into_items());
    }

    #[test]
    fn groups_without_items_are_empty() {
        let control = Control::default();
        let none = Grouped::new(control.section("groups"), (0, 2), |_| &[], |_| 0).unwrap();
        assert!(none.group(0).is_empty() && none.group(1).is_empty());
    }
}
