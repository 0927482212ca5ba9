//! A trial on a sample: is the recall of the bulk engine's graph as high as that of insertion's?
//!
//! By Euclidean distance the bulk engine begins without a trial, except of sparse values without tiles. For these, under inner product of
//! vectors of different norms, and by Hamming, Jaccard and Manhattan distance, the data decides which engine builds the better graph. If
//! there was no trial at first and the guard finds bulk's graph poor, one follows, whatever the metric. In a trial both build a graph of a
//! sample, and searches for other rows compare them, at several ef_search. A first trial's sample grows with the table: in a small one
//! insertion considers nearly all rows for each element.

use std::sync::Arc;

use graph::{ElementValues, HeapTid};
use rayon::prelude::*;

use super::intake::Setup;
use super::{BulkEngine, InsertionEngine};
use crate::input::{Storage, ValueStore};
use crate::random::Random;
use crate::search::Searcher;
use crate::space::{Measure, Query};
use crate::{BuildError, BuildSpec, Control, Engine, Finished, RowBatch};

/// The sample has one of this many rows, at least `FEWEST` and at most as many as the caller wants.
const SHARE: usize = 16;
pub(crate) const FEWEST: usize = 2000;
pub(crate) const MOST: usize = 8000;
/// Further rows, used as queries.
const QUERIES: usize = 800;
/// Sample and queries together have at most a `PART`th of all rows: their values are copied.
const PART: usize = 4;
/// Points in a run of near points.
const RUN: usize = 64;
/// Neighbors per query.
const K: usize = 10;
/// If searches compute at most this many distances on average, insertion costs less than finding candidates for bulk. In graphs of embeddings
/// they compute several hundred.
const FEW: usize = 150;
/// In a small sample all searches compute few distances: only those to at most one of this many rows count as few.
const OF_ROWS: usize = 8;
/// `ef_search` of the searches: low, since graphs differ most there.
const EF_SEARCH: [usize; 3] = [10, 20, 40];

/// Results of searches in both graphs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trial {
    bulk: Found,
    insertion: Found,
    /// Up to how many distances, computed by all searches together, count as few.
    few: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    /// Recall@10 at each of [`EF_SEARCH`], 0 to 1.
    recall: [f32; EF_SEARCH.len()],
    /// Distances computed by all searches.
    visited: usize,
}

impl Trial {
    /// Whether insertion's mean recall is higher by more than `margin`.
    pub(crate) fn insertion_finds_more(&self, margin: f32) -> bool {
        self.insertion.mean() > self.bulk.mean() + margin
    }

    /// Whether at every `ef_search` insertion's recall is at least `NEARLY_ALL`, and at most `HARDLY` below bulk's, and its searches compute
    /// at most `few` distances, or less than four fifths of bulk's: as when a few long vectors are the nearest neighbors of all queries.
    /// Insertion then also builds faster.
    pub(crate) fn insertion_is_cheaper(&self) -> bool {
        const NEARLY_ALL: f32 = 0.99;
        const HARDLY: f32 = 0.001;
        let alike = |(insertion, bulk): (f32, f32)| insertion >= NEARLY_ALL && insertion + HARDLY >= bulk;
        self.insertion.recall.into_iter().zip(self.bulk.recall).all(alike)
            && (self.insertion.visited <= self.few || 5 * self.insertion.visited < 4 * self.bulk.visited)
    }
}

impl Found {
    fn mean(&self) -> f32 {
        self.recall.iter().sum::<f32>() / self.recall.len() as f32
    }
}

/// The number of queries, and of queries and rows of the sample together.
fn counts(points: usize, most: usize) -> (usize, usize) {
    let wanted = (points / SHARE).clamp(FEWEST, most) + QUERIES;
    let count = wanted.min(points / PART);
    (count * QUERIES / wanted, count)
}

/// Builds and searches both graphs of a random sample of `points`, at most `most` ([`FEWEST`] to [`MOST`]); `None` if there are too few
/// points.
pub(crate) fn run(setup: &Setup, points: &[u32], most: usize) -> Result<Option<Trial>, BuildError> {
    let mut random = random(setup);
    let (queries, count) = counts(points.len(), most);
    let drawn = random.shuffled_sample(count, points.len());
    compare(setup, &drawn.into_iter().map(|at| points[at as usize]).collect::<Vec<_>>(), queries)
}

/// [`run`] with a sample of about [`FEWEST`] points, made of runs of near points, so that it has groups like those of the table. `order` has
/// the positions of `points`, near points adjacent.
pub(crate) fn run_of_near(setup: &Setup, points: &[u32], order: &[u32]) -> Result<Option<Trial>, BuildError> {
    let mut random = random(setup);
    let (queries, count) = counts(points.len(), FEWEST);
    let runs = random.shuffled_sample(count / RUN, points.len() / RUN);
    let mut drawn: Vec<u32> = runs.into_iter().flat_map(|run| &order[run as usize * RUN..][..RUN]).copied().collect();
    random.shuffle(&mut drawn);
    drawn.iter_mut().for_each(|at| *at = points[*at as usize]);
    compare(setup, &drawn, queries.min(drawn.len()))
}

fn random(setup: &Setup) -> Random {
    Random::new(setup.spec.seed).fork(u64::MAX - 1)
}

/// Builds graphs of the `drawn` points without the first `queries`, and compares them by searches for these.
fn compare(setup: &Setup, drawn: &[u32], queries: usize) -> Result<Option<Trial>, BuildError> {
    let Setup { spec, measure, pool, control, store, .. } = setup;
    let (queries, rows) = drawn.split_at(queries);
    if queries.is_empty() || rows.len() <= 2 * usize::from(spec.m) {
        return Ok(None);
    }
    let values = |elements: &[u32]| -> Vec<Vec<u8>> { elements.iter().map(|&e| store.value(e).to_vec()).collect() };
    let (queries, rows) = (values(queries), values(rows));
    let exact = pool.run(|| {
        let furthest = |scratch: &mut Query, query: &Vec<u8>| Ok(furthest(*measure, scratch, query, &rows));
        control.section("neighbors in the trial").map_init(queries.par_iter(), furthest)
    })?;
    let found = |engine: Box<dyn Engine>| -> Result<Found, BuildError> {
        let finished = build(engine, spec, &rows)?;
        pool.run(|| search_all(*measure, &finished, &queries, &exact, control))
    };
    let aside =
        || Setup { control: control.aside(), store: Arc::new(ValueStore::new(Storage::default())), ..setup.clone() };
    let bulk = found(Box::new(BulkEngine::start(aside()).without_trial()))?;
    let insertion = found(Box::new(InsertionEngine::start(aside())))?;
    let few = EF_SEARCH.len() * queries.len() * FEW.min(rows.len() / OF_ROWS);
    Ok(Some(Trial { bulk, insertion, few }))
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
    measure.prepare(scratch, query);
    let mut distances: Vec<f32> = rows.iter().map(|row| measure.distance_of(scratch, query, row)).collect();
    let last = K.min(distances.len()) - 1;
    *distances.select_nth_unstable_by(last, f32::total_cmp).1
}

fn search_all(
    measure: Measure,
    finished: &Finished,
    queries: &[Vec<u8>],
    exact: &[f32],
    control: &Control,
) -> Result<Found, BuildError> {
    let search = |(searcher, scratch): &mut (Searcher, Query), (query, &furthest): (&Vec<u8>, &f32)| {
        measure.prepare(scratch, query);
        let mut visited = 0;
        let hits = EF_SEARCH.map(|ef| {
            let distance = |element| {
                visited += 1;
                measure.distance_of(scratch, query, finished.values.value(element))
            };
            let found = searcher.search(&finished.graph, distance, |_| {}, ef);
            // Count rows: an element may have several.
            let near = found.iter().filter(|near| near.distance() <= furthest);
            near.map(|near| finished.graph.heap_tids().of(near.element()).len()).sum::<usize>().min(K)
        });
        Ok((hits, visited))
    };
    let each = control.section("searches of the trial").map_init(queries.par_iter().zip(exact), search)?;
    let mut found = Found::default();
    for (hits, visited) in each {
        found.visited += visited;
        let shares = hits.map(|hits| hits as f32 / (K * queries.len()) as f32);
        found.recall.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{FEWEST, Found, MOST, Trial, counts};

    fn trial(insertion: ([f32; 3], usize), bulk: ([f32; 3], usize)) -> Trial {
        let found = |(recall, visited)| Found { recall, visited };
        Trial { insertion: found(insertion), bulk: found(bulk), few: 150 }
    }

    #[test]
    fn a_trial_has_the_size_of_the_memory_estimate() {
        for points in [0, 100, 11_200, 11_201, 32_000, 100_000, 127_999, 128_000, 10_000_000] {
            let (queries, count) = counts(points, MOST);
            assert!(counts(points, FEWEST).1 <= count);
            assert_eq!(count as u64, pages::sizes::in_trial(points as u64), "{points}");
            assert_eq!(counts(points, FEWEST).1 as u64, pages::sizes::in_late_trial(points as u64), "{points}");
            assert!(queries <= count / 3 && (queries == super::QUERIES || points < 11_200), "{points}: {queries}");
        }
    }

    #[test]
    fn no_single_ef_search_decides() {
        // Word vectors by inner product, 2,000 of 60,000: over all of them bulk finds .02 more.
        let words = trial(([0.887, 0.962, 0.990], 100), ([0.876, 0.962, 0.992], 100));
        assert!(!words.insertion_finds_more(0.004));
        let positive = trial(([0.964, 0.995, 0.999], 100), ([0.942, 0.988, 0.998], 100));
        assert!(positive.insertion_finds_more(0.004));
    }

    #[test]
    fn insertion_is_cheaper_if_its_searches_visit_few_elements() {
        // A few long vectors are the nearest neighbors of all queries, in both graphs.
        let all = [1.0; 3];
        assert!(trial((all, 80), (all, 50)).insertion_is_cheaper());
        assert!(!trial(([0.99, 1.0, 1.0], 80), (all, 50)).insertion_is_cheaper(), "it must find as much");
    }

    #[test]
    fn insertion_is_not_cheaper_if_it_finds_less() {
        let all = [1.0; 3];
        assert!(trial((all, 790), (all, 1000)).insertion_is_cheaper());
        assert!(!trial((all, 810), (all, 1000)).insertion_is_cheaper());
        assert!(!trial(([0.995, 1.0, 1.0], 500), (all, 1000)).insertion_is_cheaper());
        assert!(!trial(([0.98; 3], 500), ([0.98; 3], 1000)).insertion_is_cheaper(), "elsewhere recall decides");
    }
}
