//! A trial on a sample: does the bulk engine's graph find as much as one built by insertion?
//!
//! By Euclidean distance what matters for a graph is known. Under inner product of vectors of different lengths, and for sparse, binary and
//! Manhattan distances, it depends on the data who builds the better graph. So both build the graph of a sample, and rows that are not in
//! it are searched for: the difference has the same sign as between the graphs of all rows.

use std::sync::Arc;

use distance::Candidate;
use graph::{ElementValues, HeapTid};
use rayon::prelude::*;

use super::intake::Setup;
use super::{BulkEngine, InsertionEngine};
use crate::input::{Storage, ValueStore};
use crate::random::Random;
use crate::search::Searcher;
use crate::space::{Measure, Query};
use crate::{BuildError, BuildSpec, Engine, Finished, RowBatch};

/// Rows of the sample, and rows that are searched for: a row of each five.
const SAMPLE: usize = 2000;
const QUERIES: usize = 400;
/// The sample is at most so small a part of the rows: its copies are to be small beside them.
const PART: usize = 4;
/// Neighbors asked for, and a low `ef_search`, by which graphs differ most.
const K: usize = 10;

/// Whether insertion finds more in a sample of `points`, by more than `margin`.
pub(crate) fn insertion_finds_more(setup: &Setup, points: &[u32], margin: f32) -> Result<bool, BuildError> {
    let Setup { spec, measure, pool, control, store } = setup;
    let mut random = Random::new(spec.seed).fork(u64::MAX - 1);
    let drawn = random.sample((points.len() / PART).min(SAMPLE + QUERIES), points.len());
    let drawn: Vec<u32> = drawn.into_iter().map(|at| points[at]).collect();
    let (queries, rows) = drawn.split_at(drawn.len() / 5);
    if queries.is_empty() || rows.len() <= 2 * usize::from(spec.m) {
        return Ok(false);
    }
    let values = |elements: &[u32]| -> Vec<Vec<u8>> { elements.iter().map(|&e| store.value(e).to_vec()).collect() };
    let (queries, rows) = (values(queries), values(rows));
    let exact: Vec<f32> = pool.run(|| {
        queries
            .par_iter()
            .map_init(Query::default, |scratch, query| furthest(*measure, scratch, query, &rows))
            .collect()
    });
    let found = |engine: Box<dyn Engine>| -> Result<f32, BuildError> {
        let finished = build(engine, spec, &rows)?;
        Ok(pool.run(|| recall(*measure, &finished, &queries, &exact)))
    };
    let aside =
        || Setup { control: control.aside(), store: Arc::new(ValueStore::new(Storage::default())), ..setup.clone() };
    let bulk = found(Box::new(BulkEngine::start(aside()).without_trial()))?;
    let insertion = found(Box::new(InsertionEngine::start(aside())))?;
    Ok(insertion > bulk + margin)
}

fn build(mut engine: Box<dyn Engine>, spec: &BuildSpec, rows: &[Vec<u8>]) -> Result<Finished, BuildError> {
    let varying = spec.value_type.value_len(spec.dims).is_none();
    for value in rows {
        let lengths = [value.len() as u32];
        let lengths = if varying { &lengths[..] } else { &[] };
        engine.add(RowBatch { tids: &[HeapTid::new(0, 1)], values: value, lengths })?;
    }
    engine.finish()
}

/// The distance of the [`K`]th nearest row.
fn furthest(measure: Measure, scratch: &mut Query, query: &[u8], rows: &[Vec<u8>]) -> f32 {
    measure.ask(scratch, query);
    let mut distances: Vec<f32> = rows.iter().map(|row| measure.distance_of(scratch, query, row)).collect();
    let last = K.min(distances.len()) - 1;
    *distances.select_nth_unstable_by(last, f32::total_cmp).1
}

fn recall(measure: Measure, finished: &Finished, queries: &[Vec<u8>], exact: &[f32]) -> f32 {
    let search = |(searcher, scratch): &mut (Searcher, Query), (query, &furthest): (&Vec<u8>, &f32)| {
        measure.ask(scratch, query);
        let distance = |element| measure.distance_of(scratch, query, finished.values.value(element));
        let found = searcher.search(&finished.graph, distance, |_| {}, K);
        // Elements may have several rows; then there are fewer of them.
        let near = |near: &&Candidate| near.distance() <= furthest;
        found.iter().filter(near).map(|near| finished.graph.heap_tids().of(near.element()).len()).sum::<usize>().min(K)
    };
    let hits: usize = queries.par_iter().zip(exact).map_init(<(Searcher, Query)>::default, search).sum();
    hits as f32 / (K * queries.len()) as f32
}
