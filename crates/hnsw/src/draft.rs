//! A graph while its lists are being completed.

use std::ops::Range;

use graph::{Graph, GraphError, GraphParts, HeapTids, NO_NEIGHBOR};
use rayon::prelude::*;

use crate::search::Links;
use crate::tasks::Section;
use crate::{BuildError, Control};

pub(crate) struct Draft {
    m: usize,
    levels: Vec<u8>,
    entry: Option<u32>,
    /// Empty until a list is set.
    layer0: Vec<u32>,
    /// `(element, where its lists start in upper)`, for elements of level 1 and more.
    upper_starts: Vec<(u32, usize)>,
    upper: Vec<u32>,
}

impl Draft {
    /// Elements of the given levels without any neighbor.
    pub(crate) fn new(m: u16, levels: Vec<u8>) -> Self {
        let m = usize::from(m);
        let mut upper_starts = Vec::new();
        let mut slots = 0;
        for (element, &level) in (0u32..).zip(&levels) {
            if level > 0 {
                upper_starts.push((element, slots));
                slots += usize::from(level) * m;
            }
        }
        let top = levels.iter().max();
        let entry = levels.iter().position(|level| Some(level) == top).map(|at| at as u32);
        Self { m, levels, entry, layer0: Vec::new(), upper_starts, upper: vec![NO_NEIGHBOR; slots] }
    }

    /// A copy. Runs on the threads of the pool it is called from: the lists of layer 0 are large.
    pub(crate) fn copy(&self, control: &Control) -> Result<Self, BuildError> {
        let layer0 = control.section("lists copied").fill(self.layer0.len(), |at| self.layer0[at])?;
        let Self { m, entry, .. } = *self;
        Ok(Self {
            m,
            levels: self.levels.clone(),
            entry,
            layer0,
            upper_starts: self.upper_starts.clone(),
            upper: self.upper.clone(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.levels.len()
    }

    pub(crate) fn m(&self) -> usize {
        self.m
    }

    /// Slots of a list.
    pub(crate) fn width(&self, layer: u8) -> usize {
        if layer == 0 { 2 * self.m } else { self.m }
    }

    pub(crate) fn level(&self, element: u32) -> u8 {
        self.levels[element as usize]
    }

    /// The entry point, which is the first element of the highest level, and its level.
    pub(crate) fn entry_point(&self) -> Option<(u32, u8)> {
        self.entry.map(|entry| (entry, self.level(entry)))
    }

    /// All elements of a layer.
    pub(crate) fn on_layer(&self, layer: u8) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.levels).filter(move |&(_, &level)| level >= layer).map(|(element, _)| element)
    }

    /// Frees the lists of layer 0; they are then empty.
    pub(crate) fn drop_layer0(&mut self) {
        self.layer0 = Vec::new();
    }

    pub(crate) fn slots(&self, element: u32, layer: u8) -> &[u32] {
        let range = self.range(element, layer);
        if layer == 0 { self.layer0.get(range).unwrap_or_default() } else { &self.upper[range] }
    }

    pub(crate) fn slots_mut(&mut self, element: u32, layer: u8) -> &mut [u32] {
        if layer == 0 && self.layer0.is_empty() {
            self.layer0 = vec![NO_NEIGHBOR; self.levels.len() * self.width(0)];
        }
        let range = self.range(element, layer);
        if layer == 0 { &mut self.layer0[range] } else { &mut self.upper[range] }
    }

    pub(crate) fn neighbors(&self, element: u32, layer: u8) -> &[u32] {
        let slots = self.slots(element, layer);
        &slots[..slots.iter().position(|&slot| slot == NO_NEIGHBOR).unwrap_or(slots.len())]
    }

    /// Replaces a list; neighbors beyond its width are dropped.
    pub(crate) fn set(&mut self, element: u32, layer: u8, neighbors: impl IntoIterator<Item = u32>) {
        fill(self.slots_mut(element, layer), neighbors);
    }

    /// Replaces the lists of layer 0 of the elements for which `neighbors` returns `Some`. Runs on the threads of the pool it is called from.
    pub(crate) fn set_layer0<N: Iterator<Item = u32>>(
        &mut self,
        neighbors: impl Fn(usize) -> Option<N> + Sync + Send,
        control: &Control,
    ) -> Result<(), BuildError> {
        // Zeroed memory is mapped when it is first written: here by the tasks, in parallel.
        let fresh = self.layer0.is_empty();
        if fresh {
            self.layer0 = vec![0; self.levels.len() * self.width(0)];
        }
        self.change_layer0(control.section("lists"), |element, slots| match neighbors(element) {
            Some(neighbors) => fill(slots, neighbors),
            None if fresh => slots.fill(NO_NEIGHBOR),
            None => {}
        })
    }

    /// Calls `change` with each element and the slots of its list of layer 0. Runs on the threads of the pool it is called from.
    pub(crate) fn change_layer0(
        &mut self,
        section: Section<'_>,
        change: impl Fn(usize, &mut [u32]) + Sync + Send,
    ) -> Result<(), BuildError> {
        /// Lists that a task changes.
        const LISTS: usize = 512;
        let width = self.width(0);
        section.for_each(self.layer0.par_chunks_mut(LISTS * width).enumerate(), |(task, lists)| {
            let lists = (task * LISTS..).zip(lists.chunks_exact_mut(width));
            lists.for_each(|(element, slots)| change(element, slots));
            Ok(())
        })
    }

    /// Where a list is, among those of layer 0 or those of the upper layers.
    fn range(&self, element: u32, layer: u8) -> Range<usize> {
        let width = self.width(layer);
        if layer == 0 {
            return element as usize * width..(element as usize + 1) * width;
        }
        debug_assert!(layer <= self.level(element));
        let at = self.upper_starts.partition_point(|&(other, _)| other < element);
        let start = self.upper_starts[at].1 + usize::from(layer - 1) * width;
        start..start + width
    }

    /// Validates the draft in parallel, and returns the finished graph.
    pub(crate) fn finish(self, heap_tids: HeapTids, control: &Control) -> Result<Graph, BuildError> {
        /// Elements that a task checks.
        const AT_ONCE: u32 = 4096;
        let entry = self.entry;
        let parts = GraphParts {
            m: self.m as u16,
            levels: self.levels,
            layer0: self.layer0,
            upper: self.upper,
            heap_tids,
            entry,
        };
        let fail = |error: GraphError| BuildError::Internal(error.to_string());
        let check_all = |elements: u32, check: &(dyn Fn(Range<u32>) -> Result<(), GraphError> + Sync)| {
            let tasks = (0..elements.div_ceil(AT_ONCE)).into_par_iter();
            let range = |task: u32| task * AT_ONCE..elements.min((task + 1) * AT_ONCE);
            control.section("check").for_each(tasks, |task| check(range(task)).map_err(fail))
        };
        Graph::checked_by(parts, check_all, fail)
    }
}

impl Links for Draft {
    fn len(&self) -> usize {
        self.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        self.entry_point()
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        self.neighbors(element, layer).iter().copied()
    }
}

fn fill(slots: &mut [u32], neighbors: impl IntoIterator<Item = u32>) {
    slots.fill(NO_NEIGHBOR);
    slots.iter_mut().zip(neighbors).for_each(|(slot, neighbor)| *slot = neighbor);
}

#[cfg(test)]
mod tests {
    use super::Draft;

    #[test]
    fn links_have_the_size_of_the_memory_estimate() {
        const M: u64 = 16;
        let mut draft = Draft::new(M as u16, vec![2, 0]);
        draft.set(0, 0, [1]);
        assert_eq!(size_of_val(draft.slots(0, 0)) as u64, 2 * M * pages::sizes::LINK);
        assert_eq!(size_of_val(draft.layer0.as_slice()) as u64, 2 * 2 * M * pages::sizes::LINK);
        assert_eq!(size_of_val(draft.upper.as_slice()) as u64, 2 * M * pages::sizes::LINK);
    }
}
