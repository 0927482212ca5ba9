//! The order of the elements on pages.
//!
//! A search reads the pages of all neighbors of each element it expands. So a page is filled greedily with elements that link to each
//! other: next comes the element with the most links from the page so far; a new page begins where the last one ended.
//!
//! Several fronts fill pages at the same time, each beginning among its own elements. They work in rounds, and see only in the next round
//! which elements others have taken; an element that two fronts take in one round goes to the first of them. So the order is the same for
//! any number of threads.

use std::collections::VecDeque;

use graph::{ElementValues, Graph};
use pgvector::{ELEMENT_DATUM, LINE_POINTER_LEN, PAGE_SPACE};
use rayon::prelude::*;

use crate::{BuildError, Control};

/// Elements per front: enough that few pages are filled where fronts meet, few enough that many threads have work.
const FRONT: usize = 1 << 13;
/// Elements that a front takes in a round, rounded up to whole pages: enough that the cost of starting a round does not matter.
const ROUND: usize = 128;

/// Bytes of an element besides its value, whose header has 8 (a sparsevec's has 12, which hardly matters here).
const ELEMENT_HEAD: usize = ELEMENT_DATUM + 8 + LINE_POINTER_LEN;

/// About how many elements fit on a page.
pub(crate) fn elements_per_page(graph: &Graph, values: &dyn ElementValues) -> usize {
    let sample = graph.elements().step_by((graph.len() / 1000).max(1));
    let (count, bytes) = sample.fold((0, 0), |(count, bytes), e| (count + 1, bytes + values.value(e).len()));
    let mean = bytes.checked_div(count).unwrap_or(0);
    PAGE_SPACE / (mean.next_multiple_of(8) + ELEMENT_HEAD)
}

/// All elements in page order. `near` has all elements, near ones adjacent.
pub(crate) fn by_page(graph: &Graph, near: &[u32], per_page: usize, control: &Control) -> Result<Vec<u32>, BuildError> {
    let per_page = per_page.max(1);
    let mut fronts: Vec<Front<'_>> = near.chunks(FRONT).map(|own| Front::new(graph, own, per_page)).collect();
    let mut placed = vec![false; graph.len()];
    let mut running: Vec<&mut Front<'_>> = fronts.iter_mut().collect();
    while !running.is_empty() {
        control.section("page order").for_each_init(running.par_iter_mut(), |scratch, front| {
            front.advance(scratch, &placed);
            Ok(())
        })?;
        let taken: usize = running.iter_mut().map(|front| front.keep(&mut placed)).sum();
        control.progress().add(taken as u64);
        running.retain(|front| !front.ended);
    }
    // The last page of a front may not be full.
    let whole = |front: &Front<'_>| front.order.len() - front.order.len() % per_page;
    let pages = fronts.iter().flat_map(|front| &front.order[..whole(front)]);
    let rest = fronts.iter().flat_map(|front| &front.order[whole(front)..]);
    Ok(pages.chain(rest).copied().collect())
}

/// Fills pages, beginning among its own elements.
struct Front<'a> {
    graph: &'a Graph,
    /// Its own elements; without a candidate, it takes the next of them that is not placed.
    seeds: std::slice::Iter<'a, u32>,
    per_page: usize,
    /// The elements taken so far, in page order.
    order: Vec<u32>,
    /// The elements of `order` before this index are final, and other fronts see them as placed.
    known: usize,
    /// Whether there is nothing left to take.
    ended: bool,
}

/// The state of a front within a round.
#[derive(Default)]
struct Round {
    /// The elements taken in this round.
    taken: Table,
    candidates: Linked,
}

impl<'a> Front<'a> {
    fn new(graph: &'a Graph, own: &'a [u32], per_page: usize) -> Self {
        Self {
            graph,
            seeds: own.iter(),
            per_page,
            order: Vec::with_capacity(own.len() + per_page),
            known: 0,
            ended: false,
        }
    }

    /// Takes elements for a round. `placed`: by element, whether a front has taken it in a round before.
    fn advance(&mut self, round: &mut Round, placed: &[bool]) {
        round.taken.clear();
        // Other fronts may have got some of the last page's elements, and some of the candidates.
        round.candidates.clear();
        let page = self.order.len().saturating_sub(1) / self.per_page * self.per_page;
        self.order[page..].iter().for_each(|&element| round.link_from(element, self.graph, placed));
        let full = (self.order.len() + ROUND).next_multiple_of(self.per_page);
        while self.order.len() < full {
            let best = round.candidates.best();
            if self.order.len().is_multiple_of(self.per_page) {
                round.candidates.clear();
            }
            let is_open = |&element: &u32| !placed[element as usize] && !round.taken.has(element);
            let Some(element) = best.or_else(|| self.seeds.by_ref().copied().find(is_open)) else {
                self.ended = true;
                return;
            };
            self.order.push(element);
            round.taken.add(element);
            round.link_from(element, self.graph, placed);
        }
    }

    /// Ends the round: keeps the elements that no front before has taken, and returns their number.
    fn keep(&mut self, placed: &mut [bool]) -> usize {
        let mut kept = self.known;
        for at in self.known..self.order.len() {
            let element = self.order[at];
            if !std::mem::replace(&mut placed[element as usize], true) {
                self.order[kept] = element;
                kept += 1;
            }
        }
        let taken = kept - self.known;
        self.order.truncate(kept);
        self.known = kept;
        taken
    }
}

impl Round {
    /// Counts the links from an element on the page being filled to elements that are not placed.
    fn link_from(&mut self, element: u32, graph: &Graph, placed: &[bool]) {
        for &neighbor in graph.neighbors(element, 0) {
            if !placed[neighbor as usize] && !self.taken.has(neighbor) {
                self.candidates.add(neighbor);
            }
        }
    }
}

/// Elements that the page being filled links to.
#[derive(Default)]
struct Linked {
    elements: Table,
    /// The links to each from the page; 0 once it is on the page.
    links: Vec<u16>,
    /// Places in `elements`, by the number of links. A candidate that gets another link is added to the next list; its older entries are stale.
    by_links: Vec<VecDeque<u32>>,
}

impl Linked {
    /// Counts a link to an element.
    fn add(&mut self, element: u32) {
        let at = self.elements.add(element);
        if at == self.links.len() {
            self.links.push(0);
        }
        self.links[at] += 1;
        let links = usize::from(self.links[at]);
        if links > self.by_links.len() {
            self.by_links.push(VecDeque::new());
        }
        self.by_links[links - 1].push_back(at as u32);
    }

    /// Takes the candidate with the most links; of several, the first that got that many, which is nearer to the start of the page.
    fn best(&mut self) -> Option<u32> {
        for links in (1..=self.by_links.len()).rev() {
            while let Some(at) = self.by_links[links - 1].pop_front() {
                if usize::from(self.links[at as usize]) == links {
                    self.links[at as usize] = 0;
                    return Some(self.elements.keys[at as usize]);
                }
            }
        }
        None
    }

    fn clear(&mut self) {
        self.elements.clear();
        self.links.clear();
        self.by_links.iter_mut().for_each(VecDeque::clear);
    }
}

/// A small set of elements, in the order in which they were added.
#[derive(Default)]
struct Table {
    keys: Vec<u32>,
    /// A hash table with open addressing: places in `keys`, plus 1.
    slots: Vec<u32>,
}

impl Table {
    /// Adds an element, and returns its place.
    fn add(&mut self, key: u32) -> usize {
        if 2 * self.keys.len() >= self.slots.len() {
            self.slots = vec![0; (2 * self.slots.len()).max(256)];
            for at in 0..self.keys.len() {
                let slot = self.slot(self.keys[at]);
                self.slots[slot] = at as u32 + 1;
            }
        }
        let slot = self.slot(key);
        if self.slots[slot] == 0 {
            self.keys.push(key);
            self.slots[slot] = self.keys.len() as u32;
        }
        self.slots[slot] as usize - 1
    }

    fn has(&self, key: u32) -> bool {
        !self.keys.is_empty() && self.slots[self.slot(key)] != 0
    }

    /// The slot of an element, or the empty one where it would be.
    fn slot(&self, key: u32) -> usize {
        // Multiplied by the golden ratio, consecutive numbers are spread over all slots.
        let shift = u32::BITS - self.slots.len().trailing_zeros();
        let mut slot = (key.wrapping_mul(0x9e37_79b9) >> shift) as usize;
        while self.slots[slot] != 0 && self.keys[self.slots[slot] as usize - 1] != key {
            slot = (slot + 1) % self.slots.len();
        }
        slot
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.slots.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::{HashMap, HashSet};

    use graph::{Graph, HeapTid, HeapTids};

    use super::{FRONT, Linked, by_page, elements_per_page};
    use crate::draft::Draft;
    use crate::random::Random;
    use crate::testing::{cube, pool, store};
    use crate::{Control, Pool};

    fn graph(draft: Draft) -> Graph {
        let mut tids = HeapTids::with_capacity(draft.len(), draft.len());
        (0..draft.len() as u32).for_each(|element| tids.push([HeapTid::new(element, 1)]));
        draft.finish(tids, &Control::default()).unwrap()
    }

    #[test]
    fn elements_that_link_to_each_other_share_a_page() {
        // Even and odd elements are two cliques of five.
        let mut draft = Draft::new(2, vec![0; 10]);
        for element in 0..10u32 {
            draft.set(element, 0, (0..10).filter(|&other| other != element && other % 2 == element % 2));
        }
        let graph = graph(draft);
        let near: Vec<u32> = (0..10).collect();
        let mut order = by_page(&graph, &near, 5, &Control::default()).unwrap();
        assert!(order[..5].iter().all(|element| element % 2 == 0), "{order:?}");
        order.sort_unstable();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
        // An element of 100 dimensions has 484 bytes.
        assert_eq!(elements_per_page(&graph, &*store(&cube::<100>(10, 1))), 16);
    }

    /// A ring of several fronts, each of whose elements links to the two before and the two after it.
    const RING: u32 = 5 * FRONT as u32 + 10;

    fn ring() -> Graph {
        let mut draft = Draft::new(2, vec![0; RING as usize]);
        let others = |element: u32| [1, 2, RING - 1, RING - 2].map(|step| (element + step) % RING);
        (0..RING).for_each(|element| draft.set(element, 0, others(element)));
        graph(draft)
    }

    #[test]
    fn a_page_that_is_not_full_shifts_no_others() {
        // Cliques of seven; the first front ends with two elements.
        const SIZE: usize = 7;
        const COUNT: usize = FRONT + 300 * SIZE;
        assert_eq!(FRONT % SIZE, 2);
        let clique = |element: u32| {
            let part = if element < FRONT as u32 { 0..FRONT as u32 } else { FRONT as u32..COUNT as u32 };
            let first = element - (element - part.start) % SIZE as u32;
            first..(first + SIZE as u32).min(part.end)
        };
        let mut draft = Draft::new(SIZE as u16 / 2, vec![0; COUNT]);
        for element in 0..COUNT as u32 {
            // The two also link to the first elements, which are on a page by then.
            draft.set(element, 0, clique(element).filter(|&other| other != element).chain(0..SIZE as u32 - 2));
        }
        let order = by_page(&graph(draft), &(0..COUNT as u32).collect::<Vec<_>>(), SIZE, &Control::default()).unwrap();
        for page in order.chunks_exact(SIZE) {
            assert!(page.iter().all(|element| clique(page[0]).contains(element)), "{page:?}");
        }
    }

    #[test]
    fn fronts_that_meet_take_each_element_once() {
        let graph = ring();
        let mut near: Vec<u32> = (0..RING).collect();
        // Each front's elements lie all over the ring, so that fronts meet all the time.
        Random::new(3).shuffle(&mut near);
        let order = |pool: &Pool| pool.run(|| by_page(&graph, &near, 8, &Control::default()).unwrap());
        let (mut one, four) = (order(&pool()), order(&Pool::new(4).unwrap()));
        assert_eq!(one, four);
        one.sort_unstable();
        assert_eq!(one, (0..RING).collect::<Vec<_>>());
    }

    #[test]
    fn the_candidate_with_most_links_is_taken_and_ties_go_to_the_earliest() {
        // For each candidate its links, and when it got the last one.
        let (mut candidates, mut model, mut random) = (Linked::default(), HashMap::new(), Random::new(1));
        let mut gone = HashSet::new();
        for step in 0..5000 {
            let element = (random.below(60) * random.below(60)) as u32;
            if !gone.contains(&element) {
                candidates.add(element);
                let (links, last) = model.entry(element).or_insert((0, 0));
                (*links, *last) = (*links + 1, step);
            }
            if step % 7 == 0 {
                let best = model.iter().max_by_key(|&(_, &(links, last))| (links, Reverse(last)));
                let best = best.map(|(&element, _)| element);
                assert_eq!(candidates.best(), best);
                best.inspect(|element| _ = (model.remove(element), gone.insert(*element)));
            }
        }
        assert!(gone.len() > 100);
        candidates.clear();
        assert_eq!(candidates.best(), None);
    }
}
