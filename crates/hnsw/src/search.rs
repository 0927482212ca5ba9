//! A search of the finished graph as pgvector does it, to see whether elements find themselves.

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

/// Down through the layers with one candidate, then layer 0 with `ef` of them (algorithms 2 and 5 of the HNSW paper).
///
/// Elements nearest first, at most `ef`; `distance` is that of an element to what is searched for.
pub fn search(graph: &Graph, distance: impl Fn(u32) -> f32, ef: usize) -> Vec<u32> {
    let Some(entry) = graph.entry() else { return Vec::new() };
    let mut nearest = vec![entry];
    for layer in (0..=graph.level(entry)).rev() {
        nearest = search_layer(graph, &distance, &nearest, if layer == 0 { ef } else { 1 }, layer);
    }
    nearest
}

fn search_layer(graph: &Graph, distance: impl Fn(u32) -> f32, from: &[u32], ef: usize, layer: u8) -> Vec<u32> {
    let mut visited: HashSet<u32> = from.iter().copied().collect();
    let mut results: BinaryHeap<Near> = from.iter().map(|&element| Near(distance(element), element)).collect();
    let mut candidates: BinaryHeap<Reverse<Near>> = results.iter().map(|&near| Reverse(near)).collect();
    while let Some(Reverse(candidate)) = candidates.pop() {
        if results.peek().is_some_and(|furthest| candidate.0 > furthest.0) {
            break;
        }
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
    results.into_sorted_vec().into_iter().map(|near| near.1).collect()
}
