//! The order of the elements on pages.
//!
//! A search reads the pages of all neighbors of each element it expands. So a page is filled greedily with elements that link
//! to each other: next comes the element with the most links from the page so far; a new page begins where the last one ended.

use graph::{ElementValues, Graph};
use pgvector::PAGE_SPACE;

use crate::{BuildError, Control};

/// Bytes that an element needs besides its value.
const ELEMENT_HEAD: usize = 72 + 8 + 4;

/// About how many elements fit on a page.
pub(crate) fn elements_per_page(graph: &Graph, values: &dyn ElementValues) -> usize {
    let sample = graph.elements().take(1000);
    let (count, bytes) = sample.fold((0, 0), |(count, bytes), e| (count + 1, bytes + values.value(e).len()));
    let mean = bytes.checked_div(count).unwrap_or(0);
    PAGE_SPACE / (mean.next_multiple_of(8) + ELEMENT_HEAD)
}

/// All elements in the order of their pages.
pub(crate) fn by_page(graph: &Graph, per_page: usize, control: &Control) -> Result<Vec<u32>, BuildError> {
    let mut pages = Pages {
        graph,
        placed: vec![false; graph.len()],
        links: vec![0; graph.len()],
        candidates: Vec::new(),
        order: Vec::with_capacity(graph.len()),
    };
    let mut next = 0;
    while pages.order.len() < graph.len() {
        control.check()?;
        let seed = pages.end_page().unwrap_or_else(|| {
            while pages.placed[next as usize] {
                next += 1;
            }
            next
        });
        pages.place(seed);
        for _ in 1..per_page {
            let Some(best) = pages.best() else { break };
            pages.place(best);
        }
        control.progress().add(per_page as u64);
    }
    Ok(pages.order)
}

struct Pages<'a> {
    graph: &'a Graph,
    placed: Vec<bool>,
    /// Links from the page being filled.
    links: Vec<u16>,
    /// Elements with links from the page that were not placed when they were added.
    candidates: Vec<u32>,
    order: Vec<u32>,
}

impl Pages<'_> {
    fn place(&mut self, element: u32) {
        self.placed[element as usize] = true;
        self.order.push(element);
        for &neighbor in self.graph.neighbors(element, 0) {
            if !self.placed[neighbor as usize] {
                let links = &mut self.links[neighbor as usize];
                if *links == 0 {
                    self.candidates.push(neighbor);
                }
                *links = links.saturating_add(1);
            }
        }
    }

    /// The candidate with the most links; the earliest of several.
    fn best(&mut self) -> Option<u32> {
        let (links, placed) = (&self.links, &self.placed);
        self.candidates.retain(|&element| {
            let keep = !placed[element as usize];
            debug_assert!(keep || links[element as usize] > 0);
            keep
        });
        self.candidates.iter().copied().max_by_key(|&e| (links[e as usize], std::cmp::Reverse(e)))
    }

    /// Clears the page; the best remaining candidate starts the next one.
    fn end_page(&mut self) -> Option<u32> {
        let best = self.best();
        for element in self.candidates.drain(..) {
            self.links[element as usize] = 0;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use graph::{HeapTid, HeapTids};

    use super::{by_page, elements_per_page};
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
        let graph = draft.finish(tids).unwrap();
        let mut order = by_page(&graph, 5, &Control::default()).unwrap();
        assert!(order[..5].iter().all(|element| element % 2 == 0), "{order:?}");
        order.sort_unstable();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
        // An element of 100 dimensions has 484 bytes.
        assert_eq!(elements_per_page(&graph, &*store(&cube::<100>(10, 1))), 16);
    }
}
