//! A search as pgvector does it: of the finished graph, to see whether elements find themselves, or of any other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use graph::{ElementValues, Graph};

use crate::space::Space;

/// Elements looked for.
const SAMPLE: usize = 200;
/// pgvector's default `hnsw.ef_search`.
const EF_SEARCH: usize = 40;

/// The share of a sample of elements whose value is found by a search for it, 0 to 1; 1 for an empty graph.
pub(crate) fn self_recall(graph: &Graph, space: Space<'_>) -> f32 {
    let step = (graph.len() / SAMPLE).max(1);
    let (mut tried, mut found) = (0u32, 0u32);
    for element in graph.elements().step_by(step) {
        tried += 1;
        let value = space.store.value(element);
        let results = search(graph, |other| (space.measure.kernel)(value, space.store.value(other)), EF_SEARCH);
        found += u32::from(results.iter().any(|&result| space.store.value(result) == value));
    }
    if tried == 0 { 1.0 } else { found as f32 / tried as f32 }
}

/// A distance that can be ordered.
#[derive(Clone, Copy, PartialEq)]
struct Near(f32, u32);

impl Eq for Near {}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Near {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
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
    let mut from = vec![Near(distance(entry), entry)];
    for layer in (0..=level).rev() {
        let ef = if layer == 0 { ef } else { 1 };
        let mut visited: HashSet<u32> = from.iter().map(|near| near.1).collect();
        let mut candidates: BinaryHeap<Reverse<Near>> = from.iter().map(|&near| Reverse(near)).collect();
        let mut results: BinaryHeap<Near> = from.drain(..).collect();
        while let Some(Reverse(candidate)) = candidates.pop() {
            if results.peek().is_some_and(|furthest| candidate.0 > furthest.0) {
                break;
            }
            expand(candidate.1);
            for &neighbor in graph.neighbors(candidate.1, layer) {
                if !visited.insert(neighbor) {
                    continue;
                }
                let near = Near(distance(neighbor), neighbor);
                if results.len() < ef || results.peek().is_some_and(|furthest| near.0 < furthest.0) {
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
    from.into_iter().map(|near| near.1).collect()
}
