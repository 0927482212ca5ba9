//! Helpers for tests of whole builds.
#![allow(dead_code)]

use std::sync::Arc;

use graph::{Graph, HeapTid, ValueType};
use hnsw::{
    BuildError, BuildSpec, Control, EngineKind, Finished, Metric, Pass, Pool, RowBatch, Searcher, start, start_without,
};

/// Repeatable numbers between -1 and 1.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1u32 << 23) as f32) - 1.0
    }

    pub fn vector(&mut self, dims: usize) -> Vec<f32> {
        (0..dims).map(|_| self.next()).collect()
    }
}

pub fn spec(dims: u32, m: u16) -> BuildSpec {
    let spec = BuildSpec::new(ValueType::Vector, Metric::L2, dims, m, (2 * m).max(64));
    BuildSpec { expected_rows: 1000, ..spec }
}

pub fn tid(row: usize) -> HeapTid {
    HeapTid::new((row / 100) as u32, (row % 100 + 1) as u16)
}

pub const ENGINES: [EngineKind; 3] = [EngineKind::Bulk, EngineKind::Insertion, EngineKind::Usearch];

pub fn build(kind: EngineKind, spec: &BuildSpec, values: &[Vec<f32>]) -> Result<Finished, BuildError> {
    build_on(2, kind, spec, values)
}

pub fn build_on(
    threads: usize,
    kind: EngineKind,
    spec: &BuildSpec,
    values: &[Vec<f32>],
) -> Result<Finished, BuildError> {
    let pool = Arc::new(Pool::new(threads)?);
    let mut engine = start(kind, spec.clone(), pool, Control::default())?;
    for (at, batch) in values.chunks(300).enumerate() {
        let tids: Vec<_> = (0..batch.len()).map(|row| tid(at * 300 + row)).collect();
        let values: Vec<u8> = batch.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] })?;
    }
    engine.finish()
}

/// A build by the bulk engine without one of its passes.
pub fn build_without(pass: Pass, spec: &BuildSpec, values: &[Vec<f32>]) -> Finished {
    let mut engine = start_without(pass, spec.clone(), Arc::new(Pool::new(2).unwrap()), Control::default()).unwrap();
    let tids: Vec<_> = (0..values.len()).map(tid).collect();
    let values: Vec<u8> = values.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] }).unwrap();
    engine.finish().unwrap()
}

/// All lists of a graph, and the order of its elements on pages.
pub fn all(finished: &Finished) -> (Vec<u32>, &[u32]) {
    let graph = &finished.graph;
    let lists = |element| (0..=graph.level(element)).flat_map(move |layer| graph.neighbors(element, layer));
    (graph.elements().flat_map(lists).copied().collect(), &finished.order)
}

/// What must hold beyond what `Graph::new` checks.
pub fn check(finished: &Finished, rows: usize) {
    let graph = &finished.graph;
    assert_eq!(graph.heap_tids().rows(), rows);
    assert_eq!(finished.report.rows, rows as u64);
    assert_eq!(finished.report.elements, graph.len() as u64);
    assert_eq!(finished.report.unreachable, 0);
    let mut tids: Vec<_> = graph.elements().flat_map(|e| graph.heap_tids().of(e)).map(|tid| tid.0).collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len(), rows, "every row once");
    let mut order = finished.order.clone();
    order.sort_unstable();
    assert!(order.into_iter().eq(graph.elements()), "every element once");
    for layer in 0..=graph.entry().map_or(0, |entry| graph.level(entry)) {
        assert_eq!(unreachable(graph, layer), 0, "layer {layer}");
    }
}

pub fn unreachable(graph: &Graph, layer: u8) -> usize {
    let Some(entry) = graph.entry() else { return 0 };
    let mut seen = vec![false; graph.len()];
    seen[entry as usize] = true;
    let mut queue = vec![entry];
    while let Some(element) = queue.pop() {
        for &neighbor in graph.neighbors(element, layer) {
            if !std::mem::replace(&mut seen[neighbor as usize], true) {
                queue.push(neighbor);
            }
        }
    }
    graph.elements().filter(|&e| graph.level(e) >= layer && !seen[e as usize]).count()
}

/// The share of the ten nearest that a search with `ef` 100 finds, over a sample of the rows themselves.
pub fn recall(finished: &Finished, elements: distance::Elements, metric: Metric) -> f64 {
    let graph = &finished.graph;
    recall_of(finished, elements, metric, graph.elements().step_by(graph.len() / 50), 100)
}

/// [`recall`] of the elements `queries`, with `ef`.
pub fn recall_of(
    finished: &Finished,
    elements: distance::Elements,
    metric: Metric,
    queries: impl Iterator<Item = u32>,
    ef: usize,
) -> f64 {
    recall_for(finished, elements, metric, queries.map(|query| finished.values.value(query)), ef)
}

/// [`recall_of`] for values that need not be in the graph.
pub fn recall_for(
    finished: &Finished,
    elements: distance::Elements,
    metric: Metric,
    queries: impl Iterator<Item = impl AsRef<[u8]>>,
    ef: usize,
) -> f64 {
    let graph = &finished.graph;
    let kernel = distance::kernel(elements, metric).unwrap();
    let (mut hits, mut wanted) = (0, 0);
    for query in queries {
        let distance = |element: u32| kernel(query.as_ref(), finished.values.value(element));
        let mut exact: Vec<f32> = graph.elements().map(distance).collect();
        exact.sort_by(f32::total_cmp);
        let found = Searcher::default().search(graph, distance, |_| {}, ef);
        // Ties count as hits.
        hits += found.iter().take(10).filter(|near| near.distance() <= exact[9]).count();
        wanted += 10;
    }
    hits as f64 / f64::from(wanted)
}
