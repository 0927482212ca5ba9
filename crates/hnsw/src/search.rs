//! A search as pgvector does it: of the finished graph, to see whether elements find themselves, or of any other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use distance::Candidate;
use graph::{ElementValues, Graph};
use rayon::prelude::*;

use crate::space::Space;

/// Elements looked for.
const SAMPLE: usize = 100;
/// pgvector's default `hnsw.ef_search`.
const EF_SEARCH: usize = 40;

/// The share of a sample of elements whose value is found by a search for it, 0 to 1; 1 for an empty graph. Runs on the threads of
/// the pool it is called from.
pub(crate) fn self_recall(graph: &Graph, space: Space<'_>) -> f32 {
    let sample: Vec<u32> = graph.elements().step_by((graph.len() / SAMPLE).max(1)).collect();
    let finds_itself = |&element: &u32| {
        let value = space.store.value(element);
        let results = search(graph, |other| (space.measure.kernel)(value, space.store.value(other)), EF_SEARCH);
        results.iter().any(|&result| space.store.value(result) == value)
    };
    let found = sample.par_iter().filter(|&element| finds_itself(element)).count();
    if sample.is_empty() { 1.0 } else { found as f32 / sample.len() as f32 }
}

/// The links of a graph, wherever it is kept.
pub trait Links {
    /// Where searches begin, and its level; none for an empty graph.
    fn entry(&self) -> Option<(u32, u8)>;
    /// The neighbors of an element on a layer.
    fn neighbors(&self, element: u32, layer: u8) -> &[u32];
}

impl Links for Graph {
    fn entry(&self) -> Option<(u32, u8)> {
        self.entry().map(|entry| (entry, self.level(entry)))
    }

    fn neighbors(&self, element: u32, layer: u8) -> &[u32] {
        self.neighbors(element, layer)
    }
}

/// [`search_with`], of a graph that nobody watches.
pub fn search(graph: &Graph, distance: impl FnMut(u32) -> f32, ef: usize) -> Vec<u32> {
    search_with(graph, distance, |_| {}, ef)
}

/// Down through the layers with one candidate, then layer 0 with `ef` of them (algorithms 2 and 5 of the HNSW paper).
///
/// Elements nearest first, at most `ef`; `distance` is that of an element to what is searched for, `expand` hears of each element
/// whose neighbors are looked up.
pub fn search_with(
    graph: &impl Links,
    mut distance: impl FnMut(u32) -> f32,
    mut expand: impl FnMut(u32),
    ef: usize,
) -> Vec<u32> {
    let Some((entry, level)) = graph.entry() else { return Vec::new() };
    let mut from = vec![Candidate::new(distance(entry), entry)];
    for layer in (0..=level).rev() {
        let ef = if layer == 0 { ef } else { 1 };
        let mut visited: HashSet<u32> = from.iter().map(|near| near.element()).collect();
        let mut candidates: BinaryHeap<Reverse<Candidate>> = from.iter().map(|&near| Reverse(near)).collect();
        let mut results: BinaryHeap<Candidate> = from.drain(..).collect();
        while let Some(Reverse(candidate)) = candidates.pop() {
            if results.peek().is_some_and(|furthest| candidate.distance() > furthest.distance()) {
                break;
            }
            expand(candidate.element());
            for &neighbor in graph.neighbors(candidate.element(), layer) {
                if !visited.insert(neighbor) {
                    continue;
                }
                let near = Candidate::new(distance(neighbor), neighbor);
                if results.len() < ef || results.peek().is_some_and(|furthest| near.distance() < furthest.distance()) {
                    candidates.push(Reverse(near));
                    results.push(near);
                    if results.len() > ef {
                        results.pop();
                    }
                }
            }
        }
        from = results.into_sorted_vec();
    }
    from.into_iter().map(|near| near.element()).collect()
}
