//! The order of the elements on pages.
//!
//! A search reads the pages of all neighbors of each element it expands. So a page is filled greedily with elements that link to each
//! other: next comes the element with the most links from the page so far; a new page begins where the last one ended. Regions of near
//! elements are filled in parallel.

use std::cmp::Reverse;

use graph::{ElementValues, Graph};
use pgvector::PAGE_SPACE;
use rayon::prelude::*;

use crate::{BuildError, Control};

/// Elements per region, whose pages one task fills. Links between regions do not count: with regions of 32,768 elements a search reads 4 %
/// more pages.
pub(crate) const REGION: usize = 1 << 18;

/// Bytes of an element besides its value: pgvector's `HnswElementTupleData`, the value's header and the line pointer.
const ELEMENT_HEAD: usize = 72 + 8 + 4;

/// About how many elements fit on a page.
pub(crate) fn elements_per_page(graph: &Graph, values: &dyn ElementValues) -> usize {
    let sample = graph.elements().step_by((graph.len() / 1000).max(1));
    let (count, bytes) = sample.fold((0, 0), |(count, bytes), e| (count + 1, bytes + values.value(e).len()));
    let mean = bytes.checked_div(count).unwrap_or(0);
    PAGE_SPACE / (mean.next_multiple_of(8) + ELEMENT_HEAD)
}

/// All elements in page order. `near` has all elements, near ones adjacent; each of its regions fills pages of its own.
pub(crate) fn by_page(graph: &Graph, near: &[u32], per_page: usize, control: &Control) -> Result<Vec<u32>, BuildError> {
    let mut places = vec![0; graph.len()];
    near.iter().zip(0..).for_each(|(&element, place)| places[element as usize] = place);
    let mut order = vec![0; near.len()];
    let regions = near.par_chunks(REGION).zip(order.par_chunks_mut(REGION)).enumerate();
    control.section("page order").for_each(regions, |(at, (region, order))| {
        let first = (at * REGION) as u32;
        let pages = Pages {
            graph,
            places: &places,
            first,
            open: vec![true; region.len()],
            links: vec![0; region.len()],
            candidates: Vec::new(),
        };
        pages.fill(region, per_page, order, control)
    })?;
    Ok(order)
}

/// The pages of a region.
struct Pages<'a> {
    graph: &'a Graph,
    /// For each element, its place in `near`; the region starts at place `first`.
    places: &'a [u32],
    first: u32,
    /// By place in the region: whether the element is still on no page.
    open: Vec<bool>,
    /// By place in the region: links to the element from the page being filled.
    links: Vec<u16>,
    /// Elements that the page being filled links to. Some may have got a page since.
    candidates: Vec<u32>,
}

impl Pages<'_> {
    fn fill(mut self, region: &[u32], per_page: usize, order: &mut [u32], control: &Control) -> Result<(), BuildError> {
        let mut seeds = region.iter().copied();
        for page in order.chunks_mut(per_page.max(1)) {
            control.check()?;
            for (at, slot) in page.iter_mut().enumerate() {
                let best = if at == 0 { self.end_page() } else { self.best() };
                let next = || seeds.by_ref().find(|&element| self.is_open(element));
                let Some(element) = best.or_else(next) else { return Ok(()) };
                self.place(element);
                *slot = element;
            }
            control.progress().add(page.len() as u64);
        }
        Ok(())
    }

    /// An element's place in the region; beyond its end for elements of other regions.
    fn place_of(&self, element: u32) -> usize {
        self.places[element as usize].wrapping_sub(self.first) as usize
    }

    fn is_open(&self, element: u32) -> bool {
        self.open.get(self.place_of(element)).is_some_and(|&open| open)
    }

    fn place(&mut self, element: u32) {
        let place = self.place_of(element);
        self.open[place] = false;
        for &neighbor in self.graph.neighbors(element, 0) {
            let place = self.place_of(neighbor);
            if self.open.get(place) == Some(&true) {
                let links = &mut self.links[place];
                if *links == 0 {
                    self.candidates.push(neighbor);
                }
                *links = links.saturating_add(1);
            }
        }
    }

    /// The candidate with the most links, of several the one with the lowest number.
    fn best(&mut self) -> Option<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain(|&element| self.is_open(element));
        let best = candidates.iter().copied().max_by_key(|&e| (self.links[self.place_of(e)], Reverse(e)));
        self.candidates = candidates;
        best
    }

    /// Clears the page; the best remaining candidate starts the next one.
    fn end_page(&mut self) -> Option<u32> {
        let best = self.best();
        for element in std::mem::take(&mut self.candidates) {
            let place = self.place_of(element);
            self.links[place] = 0;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use graph::{HeapTid, HeapTids};

    use super::{REGION, by_page, elements_per_page};
    use crate::Control;
    use crate::draft::Draft;
    use crate::testing::{cube, store};

    #[test]
    fn elements_that_link_to_each_other_share_a_page() {
        // Even and odd elements are two cliques of five.
        let mut draft = Draft::new(2, vec![0; 10]);
        for element in 0..10u32 {
            draft.set(element, 0, (0..10).filter(|&other| other != element && other % 2 == element % 2));
        }
        let mut tids = HeapTids::with_capacity(10, 10);
        (0..10).for_each(|element| tids.push([HeapTid::new(element, 1)]));
        let graph = draft.finish(tids, &Control::default()).unwrap();
        let near: Vec<u32> = (0..10).collect();
        let mut order = by_page(&graph, &near, 5, &Control::default()).unwrap();
        assert!(order[..5].iter().all(|element| element % 2 == 0), "{order:?}");
        order.sort_unstable();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
        // An element of 100 dimensions has 484 bytes.
        assert_eq!(elements_per_page(&graph, &*store(&cube::<100>(10, 1))), 16);
    }

    #[test]
    fn regions_have_their_own_pages() {
        // A ring, of which three parts are regions.
        const COUNT: u32 = 2 * REGION as u32 + 10;
        let mut draft = Draft::new(2, vec![0; COUNT as usize]);
        let others = |element: u32| [1, 2, COUNT - 1, COUNT - 2].map(|step| (element + step) % COUNT);
        (0..COUNT).for_each(|element| draft.set(element, 0, others(element)));
        let mut tids = HeapTids::with_capacity(COUNT as usize, COUNT as usize);
        (0..COUNT).for_each(|element| tids.push([HeapTid::new(element, 1)]));
        let graph = draft.finish(tids, &Control::default()).unwrap();
        let near: Vec<u32> = (0..COUNT).rev().collect();
        let order = by_page(&graph, &near, 8, &Control::default()).unwrap();
        for (found, near) in order.chunks(REGION).zip(near.chunks(REGION)) {
            let mut found = found.to_vec();
            found.sort_unstable_by_key(|&element| Reverse(element));
            assert_eq!(found, near);
        }
        let apart = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) > 2).count();
        assert!(apart < order.len() / 8, "{apart}");
    }
}
