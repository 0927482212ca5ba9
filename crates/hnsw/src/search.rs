//! Searches any graph as pgvector does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use distance::Candidate;
use graph::Graph;

/// The links of a graph in any storage.
pub trait Links {
    /// The number of elements, which are numbered from 0.
    fn len(&self) -> usize;
    /// Whether the graph has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The entry point and its level; `None` for an empty graph.
    fn entry(&self) -> Option<(u32, u8)>;
    /// The neighbors of an element on a layer.
    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32>;
}

impl Links for Graph {
    fn len(&self) -> usize {
        self.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        self.entry().map(|entry| (entry, self.level(entry)))
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        self.neighbors(element, layer).iter().copied()
    }
}

/// Searches graphs, and reuses its memory from one search to the next.
#[derive(Default)]
pub struct Searcher {
    visited: Visited,
    candidates: BinaryHeap<Reverse<Candidate>>,
    results: BinaryHeap<Candidate>,
    /// Neighbors of the expanded element that were not visited before.
    fresh: Vec<u32>,
}

/// The distances of elements from a query. Implemented for any function from element numbers to distances.
pub trait Distances {
    /// The distance of an element.
    fn of(&mut self, element: u32) -> f32;
    /// Called for the neighbors of an element before [`Self::of`] is, so that the processor can load all their values at once.
    fn announce(&mut self, _element: u32) {}
}

impl<F: FnMut(u32) -> f32> Distances for F {
    fn of(&mut self, element: u32) -> f32 {
        self(element)
    }
}

/// Distances by a function that reads some bytes of each element, which are loaded when it is announced.
#[derive(Clone, Copy)]
pub(crate) struct Loading<D, B> {
    pub(crate) distance: D,
    pub(crate) bytes: B,
}

impl<'a, D: Fn(u32) -> f32, B: Fn(u32) -> &'a [u8]> Distances for Loading<D, B> {
    fn of(&mut self, element: u32) -> f32 {
        (self.distance)(element)
    }

    fn announce(&mut self, element: u32) {
        distance::prefetch((self.bytes)(element));
    }
}

impl Searcher {
    /// Descends through the upper layers with one candidate, then searches layer 0 with `ef` candidates (algorithms 2 and 5 of the HNSW
    /// paper).
    ///
    /// Returns at most `ef` elements, nearest first. `distance` is an element's distance to the query, `expand` is called with each
    /// element whose neighbors are read.
    pub fn search(
        &mut self,
        graph: &impl Links,
        mut distance: impl Distances,
        mut expand: impl FnMut(u32),
        ef: usize,
    ) -> Vec<Candidate> {
        let from = self.descend(graph, &mut distance, &mut expand, 0);
        self.layer(graph, &mut distance, expand, &from, ef, 0)
    }

    /// The nearest element that a search with one candidate finds on the layers above `layer`, from the entry point; none in an empty graph.
    pub(crate) fn descend(
        &mut self,
        graph: &impl Links,
        distance: &mut impl Distances,
        mut expand: impl FnMut(u32),
        layer: u8,
    ) -> Vec<Candidate> {
        let Some((entry, level)) = graph.entry() else { return Vec::new() };
        let mut from = vec![Candidate::new(distance.of(entry), entry)];
        for upper in (layer + 1..=level).rev() {
            from = self.layer(graph, distance, &mut expand, &from, 1, upper);
        }
        from
    }

    /// The `ef` nearest elements that a search on one layer finds from elements `from`, nearest first (pgvector's `HnswSearchLayer`).
    pub fn layer(
        &mut self,
        graph: &impl Links,
        distance: &mut impl Distances,
        mut expand: impl FnMut(u32),
        from: &[Candidate],
        ef: usize,
        layer: u8,
    ) -> Vec<Candidate> {
        let Self { visited, candidates, results, fresh } = self;
        visited.clear();
        for &near in from {
            visited.insert(near.element());
            candidates.push(Reverse(near));
            results.push(near);
        }
        while let Some(Reverse(candidate)) = candidates.pop() {
            if results.peek().is_some_and(|furthest| candidate.distance() > furthest.distance()) {
                break;
            }
            expand(candidate.element());
            fresh.clear();
            fresh.extend(graph.neighbors(candidate.element(), layer).filter(|&neighbor| visited.insert(neighbor)));
            fresh.iter().for_each(|&neighbor| distance.announce(neighbor));
            for &neighbor in &*fresh {
                let near = Candidate::new(distance.of(neighbor), neighbor);
                if results.len() < ef || results.peek().is_some_and(|furthest| near.distance() < furthest.distance()) {
                    candidates.push(Reverse(near));
                    results.push(near);
                    if results.len() > ef {
                        results.pop();
                    }
                }
            }
        }
        candidates.clear();
        let mut found: Vec<Candidate> = results.drain().collect();
        found.sort_unstable();
        found
    }
}

/// A hash set of elements that is cleared in constant time: entries of earlier rounds count as empty.
#[derive(Default)]
struct Visited {
    /// Round and element of each entry; the length is a power of two.
    places: Vec<u64>,
    len: usize,
    round: u32,
}

impl Visited {
    fn clear(&mut self) {
        if self.places.is_empty() || self.round == u32::MAX {
            self.places = vec![0; self.places.len().max(1 << 11)];
            self.round = 0;
        }
        self.round += 1;
        self.len = 0;
    }

    /// Adds an element, and returns whether it was absent.
    fn insert(&mut self, element: u32) -> bool {
        if 2 * self.len >= self.places.len() {
            let round = self.round;
            let before = std::mem::take(&mut self.places);
            self.places = vec![0; 2 * before.len()];
            self.len = 0;
            before
                .into_iter()
                .filter(|place| (place >> 32) as u32 == round)
                .for_each(|place| _ = self.insert(place as u32));
        }
        let entry = u64::from(self.round) << 32 | u64::from(element);
        let mask = self.places.len() - 1;
        let mut at = (u64::from(element).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & mask;
        while (self.places[at] >> 32) as u32 == self.round {
            if self.places[at] == entry {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.places[at] = entry;
        self.len += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Distances, Links, Searcher, Visited};

    /// A ring of elements, each linked to the next two.
    struct Ring(u32);

    impl Links for Ring {
        fn len(&self) -> usize {
            self.0 as usize
        }

        fn entry(&self) -> Option<(u32, u8)> {
            Some((0, 0))
        }

        fn neighbors(&self, element: u32, _layer: u8) -> impl Iterator<Item = u32> {
            [1, 2].into_iter().map(move |step| (element + step) % self.0)
        }
    }

    #[test]
    fn neighbors_are_announced_once_and_before_their_distances() {
        /// Distances from element 10, with the elements that were announced and those measured.
        #[derive(Default)]
        struct Recorded {
            announced: Vec<u32>,
            measured: Vec<u32>,
        }
        impl Distances for &mut Recorded {
            fn of(&mut self, element: u32) -> f32 {
                self.measured.push(element);
                // The entry point is no neighbor of an expanded element.
                assert!(element == 0 || self.announced.contains(&element));
                element.abs_diff(10) as f32
            }
            fn announce(&mut self, element: u32) {
                self.announced.push(element);
            }
        }
        let mut recorded = Recorded::default();
        let found = Searcher::default().search(&Ring(50), &mut recorded, |_| {}, 3);
        assert_eq!(found.iter().map(|near| near.element()).collect::<Vec<_>>(), [10, 9, 11]);
        assert_eq!(recorded.announced, recorded.measured[1..]);
    }

    #[test]
    fn a_visited_set_grows_and_can_be_cleared() {
        let mut visited = Visited::default();
        for round in 0..3 {
            visited.clear();
            for element in 0..5000 {
                assert!(visited.insert(element * 64 + round));
                assert!(!visited.insert(element / 2 * 64 + round));
            }
        }
    }
}
