//! A vector set of any type whose graphs are built and searched without a database.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use distance::{Elements, Kernel, Metric};
use graph::{HeapTid, ValueType};
use harness::Vectors;
use hnsw::{BuildSpec, Control, Engine, EngineKind, Finished, Links, Pass, Pool, Recorder, RowBatch, Searcher, Step};
use pages::{IndexMeta, Layout};
use rayon::prelude::*;

use crate::Index;
use crate::vectors::encode;

/// Values of ef_search for searches of graphs.
pub const EFS: [usize; 6] = [10, 20, 40, 100, 200, 400];
/// Numbers of neighbors for which recall is measured.
pub const KS: [usize; 3] = [1, 10, 100];

/// Rows and queries, encoded as in an index, the true neighbors, and the options of the index.
pub struct GraphSet {
    spec: BuildSpec,
    kernel: Kernel,
    rows: Vec<Vec<u8>>,
    queries: Vec<Vec<u8>>,
    /// For each query, the distances of the nearest rows; found at the first search.
    exact: OnceLock<Vec<Vec<f32>>>,
}

/// Recall and visits of searches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Searches {
    /// Recall by ef and k: the fraction of the k rows found that are no farther than the k-th nearest row, so that ties count as found.
    pub recall: [[f64; KS.len()]; EFS.len()],
    /// Elements visited per query, by ef.
    pub visited: [f64; EFS.len()],
}

impl GraphSet {
    /// A set of values that are encoded and, for cosine, normalised. Sets `spec.expected_rows`.
    pub fn new(spec: BuildSpec, rows: Vec<Vec<u8>>, queries: Vec<Vec<u8>>) -> Result<Self> {
        let kernel = distance::kernel(Elements::of(spec.value_type), spec.metric).context("no kernel")?;
        let spec = BuildSpec { expected_rows: rows.len() as u64, ..spec };
        Ok(Self { spec, kernel, rows, queries, exact: OnceLock::new() })
    }

    /// A set of `vector`s.
    pub fn of_vectors(base: &Vectors, queries: &Vectors, metric: Metric, m: u16, ef_construction: u16) -> Result<Self> {
        let spec = BuildSpec::new(ValueType::Vector, metric, base.dims() as u32, m, ef_construction);
        Self::new(spec, encode(base, metric), encode(queries, metric))
    }

    /// The type of the values.
    pub fn value_type(&self) -> ValueType {
        self.spec.value_type
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Builds a graph without a database.
    pub fn build(&self, kind: EngineKind, threads: usize) -> Result<Finished> {
        self.fill(hnsw::start(kind, self.spec.clone(), Arc::new(Pool::new(threads)?), Control::default())?)
    }

    /// Builds a graph with the engine `bulk` and one pass left out.
    pub fn build_without(&self, pass: Pass, threads: usize) -> Result<Finished> {
        self.fill(hnsw::start_without(pass, self.spec.clone(), Arc::new(Pool::new(threads)?), Control::default())?)
    }

    /// Builds a graph with the engine `bulk`, and records its tasks or sections.
    pub fn build_recorded(&self, recorder: Recorder, threads: usize) -> Result<(Finished, Vec<Step>)> {
        let (pool, recorder) = (Arc::new(Pool::new(threads)?), Arc::new(recorder));
        let control = Control::recorded(recorder.clone());
        let finished = self.fill(hnsw::start(EngineKind::Bulk, self.spec.clone(), pool, control)?)?;
        Ok((finished, recorder.take()))
    }

    fn fill(&self, mut engine: Box<dyn Engine>) -> Result<Finished> {
        let mut row = 0..;
        for rows in self.rows.chunks(100) {
            let tids: Vec<_> = row.by_ref().take(rows.len()).map(|row| HeapTid::new(row, 1)).collect();
            let varying = self.spec.value_type.value_len(self.spec.dims).is_none();
            let lengths: Vec<u32> = rows.iter().filter(|_| varying).map(|row| row.len() as u32).collect();
            engine.add(RowBatch { tids: &tids, values: &rows.concat(), lengths: &lengths })?;
        }
        Ok(engine.finish()?)
    }

    /// Searches a graph that was built without a database.
    pub fn search(&self, finished: &Finished) -> Searches {
        let rows = |element| finished.graph.heap_tids().of(element).len();
        self.search_any(&finished.graph, |element| finished.values.value(element), rows)
    }

    /// Searches an index that was read from its file.
    pub fn search_index(&self, index: &Index) -> Searches {
        self.search_any(index, |element| &index.values[element as usize], |element| index.rows[element as usize])
    }

    /// Pages that a search with each `ef` would read if the graph were an index; the means over queries.
    pub fn pages_read<const N: usize>(&self, finished: &Finished, efs: [usize; N]) -> Result<[f64; N]> {
        let BuildSpec { value_type, dims, m, ef_construction, .. } = self.spec;
        let meta = IndexMeta { value_type, dims, m, ef_construction };
        let layout = Layout::new(&finished.graph, &*finished.values, &finished.order, &meta)?;
        let read = |searcher: &mut Searcher, query: &Vec<u8>, ef| {
            // Every search reads the meta page first.
            let (mut elements, mut lists) = (HashSet::from([0]), HashSet::new());
            let distance = |element| {
                elements.insert(layout.element(element).block);
                (self.kernel)(query, finished.values.value(element))
            };
            searcher.search(&finished.graph, distance, |element| _ = lists.insert(layout.neighbor(element).block), ef);
            elements.union(&lists).count()
        };
        Ok(efs.map(|ef| {
            let read = self.queries.par_iter().map_init(Searcher::default, |searcher, query| read(searcher, query, ef));
            read.sum::<usize>() as f64 / self.queries.len().max(1) as f64
        }))
    }

    fn search_any<'v>(
        &self,
        graph: &(impl Links + Sync),
        value: impl Fn(u32) -> &'v [u8] + Sync,
        rows: impl Fn(u32) -> usize + Sync,
    ) -> Searches {
        let ask = |searcher: &mut Searcher, (query, exact): (&Vec<u8>, &Vec<f32>)| {
            let mut own = Searches::default();
            for (ef_at, &ef) in EFS.iter().enumerate() {
                let mut visited = 0;
                let distance = |element| {
                    visited += 1;
                    (self.kernel)(query, value(element))
                };
                let found = searcher.search(graph, distance, |_| {}, ef);
                own.visited[ef_at] = f64::from(visited);
                // An element counts once for each of its rows.
                let found = found.iter().flat_map(|near| (0..rows(near.element())).map(|_| near.distance()));
                let found: Vec<f32> = found.collect();
                for (k_at, &k) in KS.iter().enumerate() {
                    let k = k.min(exact.len());
                    let hits = found.iter().take(k).filter(|&&distance| distance <= exact[k - 1]).count();
                    own.recall[ef_at][k_at] = hits as f64 / k as f64;
                }
            }
            own
        };
        let exact =
            self.exact.get_or_init(|| nearest_distances(&self.rows, &self.queries, self.kernel, KS[KS.len() - 1]));
        let all = self.queries.par_iter().zip(exact).map_init(Searcher::default, ask).collect::<Vec<_>>();
        let mut mean = Searches::default();
        for own in &all {
            for ef in 0..EFS.len() {
                mean.visited[ef] += own.visited[ef] / all.len() as f64;
                (0..KS.len()).for_each(|k| mean.recall[ef][k] += own.recall[ef][k] / all.len() as f64);
            }
        }
        mean
    }
}

impl Searches {
    /// The largest loss of recall against others, with its ef and k.
    pub fn worst(&self, others: &Self) -> (f64, usize, usize) {
        let each = (0..EFS.len()).flat_map(|ef| (0..KS.len()).map(move |k| (ef, k)));
        let asked = each.filter(|&(ef, k)| KS[k] <= EFS[ef]);
        let difference = asked.map(|(ef, k)| (self.recall[ef][k] - others.recall[ef][k], EFS[ef], KS[k]));
        difference.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
    }
}

/// For each query, the distances of the `k` nearest rows, ascending.
pub fn nearest_distances<V: AsRef<[u8]> + Sync>(rows: &[V], queries: &[V], kernel: Kernel, k: usize) -> Vec<Vec<f32>> {
    let k = k.min(rows.len());
    let nearest = |query: &V| {
        let mut distances: Vec<f32> = rows.iter().map(|row| kernel(query.as_ref(), row.as_ref())).collect();
        if k > 0 {
            distances.select_nth_unstable_by(k - 1, f32::total_cmp);
        }
        distances.truncate(k);
        // Otherwise each result would keep the memory for the distances of all rows.
        distances.shrink_to_fit();
        distances.sort_unstable_by(f32::total_cmp);
        distances
    };
    queries.par_iter().map(nearest).collect()
}
