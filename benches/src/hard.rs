//! Hard data: what graphs of it find, whoever built them.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use distance::{Elements, Kernel, Metric};
use graph::{HeapTid, ValueType};
use harness::hard::{Family, ValueKind, Values};
use hnsw::{BuildSpec, Control, EngineKind, Finished, Links, Pool, Report, RowBatch, Searcher};

use crate::Index;

/// The values of ef_search that graphs are searched with.
pub const EFS: [usize; 6] = [10, 20, 40, 100, 200, 400];
/// How many neighbors are asked for.
pub const KS: [usize; 3] = [1, 10, 100];

/// A family's rows and queries as an index has them, and the true neighbors.
pub struct HardSet {
    /// What it is a set of.
    pub family: &'static Family,
    /// Its rows as they are put into a table.
    pub base: Values,
    value_type: ValueType,
    metric: Metric,
    elements: Elements,
    kernel: Kernel,
    rows: Vec<Vec<u8>>,
    queries: Vec<Vec<u8>>,
    /// For each query, the distances of the nearest rows.
    exact: Vec<Vec<f32>>,
}

/// What searches found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Searches {
    /// Recall by ef and k: the share of the rows found that are no farther than the k-th nearest, so that ties are as good.
    pub recall: [[f64; KS.len()]; EFS.len()],
    /// Elements visited per query, by ef.
    pub visited: [f64; EFS.len()],
}

impl HardSet {
    /// Draws rows and queries, and finds the true neighbors.
    pub fn make(family: &'static Family, seed: u64, rows: usize, queries: usize) -> Result<Self> {
        let (base, queries) = family.make(seed, rows.min(family.most_rows), queries);
        let metric = match family.ops {
            "l2_ops" => Metric::L2,
            "ip_ops" => Metric::InnerProduct,
            "cosine_ops" => Metric::Cosine,
            "l1_ops" => Metric::L1,
            "hamming_ops" => Metric::Hamming,
            _ => Metric::Jaccard,
        };
        let (elements, value_type) = match family.kind {
            ValueKind::Vector => (Elements::F32, ValueType::Vector),
            ValueKind::Halfvec => (Elements::F16, ValueType::HalfVec),
            ValueKind::Bit => (Elements::Bits, ValueType::Bit),
            ValueKind::Sparsevec => (Elements::Sparse, ValueType::SparseVec),
        };
        let encode = |values: &Values| -> Vec<Vec<u8>> {
            let each = 0..values.len();
            match metric {
                Metric::Cosine => each.filter_map(|at| values.normalised(at)).collect(),
                _ => each.map(|at| values.value(at).to_vec()).collect(),
            }
        };
        let kernel = distance::kernel(elements, metric).context("no kernel")?;
        let (rows, queries) = (encode(&base), encode(&queries));
        let exact = exact(&rows, &queries, kernel);
        Ok(Self { family, base, value_type, metric, elements, kernel, rows, queries, exact })
    }

    /// Builds a graph without a database. Returns it with the report.
    pub fn build(&self, kind: EngineKind, threads: usize) -> Result<(Finished, Report)> {
        let spec = BuildSpec {
            value_type: self.value_type,
            metric: self.metric,
            dims: self.family.dims as u32,
            m: self.family.m,
            ef_construction: self.family.ef_construction,
            expected_rows: self.rows.len() as u64,
            rows_per_element: graph::HEAP_TIDS_PER_ELEMENT as u8,
            seed: 0,
        };
        let mut engine = hnsw::start(kind, spec, Arc::new(Pool::new(threads)?), Control::default())?;
        let mut row = 0..;
        for rows in self.rows.chunks(100) {
            let tids: Vec<_> = row.by_ref().take(rows.len()).map(|row| HeapTid::new(row, 1)).collect();
            let sparse = self.elements == Elements::Sparse;
            let lengths: Vec<u32> = rows.iter().filter(|_| sparse).map(|row| row.len() as u32).collect();
            engine.add(RowBatch { tids: &tids, values: &rows.concat(), lengths: &lengths })?;
        }
        let finished = engine.finish()?;
        let report = finished.report;
        Ok((finished, report))
    }

    /// Reads the file of an index.
    pub fn read(&self, path: &Path) -> Result<Index> {
        Index::read(path, self.value_type)
    }

    /// Searches a graph that was built without a database.
    pub fn search(&self, finished: &Finished) -> Searches {
        let rows = |element| finished.graph.heap_tids().of(element).len();
        self.search_any(&finished.graph, |element| finished.values.value(element), rows)
    }

    /// Searches an index.
    pub fn search_index(&self, index: &Index) -> Searches {
        self.search_any(index, |element| &index.values[element as usize], |element| index.rows[element as usize])
    }

    fn search_any<'v>(
        &self,
        graph: &(impl Links + Sync),
        value: impl Fn(u32) -> &'v [u8] + Sync,
        rows: impl Fn(u32) -> usize + Sync,
    ) -> Searches {
        let ask = |(query, exact): (&Vec<u8>, &Vec<f32>), searcher: &mut Searcher, sum: &mut Searches| {
            for (ef_at, &ef) in EFS.iter().enumerate() {
                let mut visited = 0;
                let distance = |element| {
                    visited += 1;
                    (self.kernel)(query, value(element))
                };
                let found = searcher.search(graph, distance, |_| {}, ef);
                sum.visited[ef_at] += f64::from(visited);
                // Each row of an element counts.
                let found = found.iter().flat_map(|near| (0..rows(near.element())).map(|_| near.distance()));
                let found: Vec<f32> = found.collect();
                for (k_at, &k) in KS.iter().enumerate() {
                    let k = k.min(exact.len());
                    let hits = found.iter().take(k).filter(|&&distance| distance <= exact[k - 1]).count();
                    sum.recall[ef_at][k_at] += hits as f64 / k as f64;
                }
            }
        };
        let half = self.queries.len().div_ceil(2).max(1);
        let run = |(queries, exact): (&[Vec<u8>], &[Vec<f32>])| {
            let (mut searcher, mut sum) = (Searcher::default(), Searches::default());
            queries.iter().zip(exact).for_each(|both| ask(both, &mut searcher, &mut sum));
            sum
        };
        let sums: Vec<Searches> = thread::scope(|scope| {
            let parts = self.queries.chunks(half).zip(self.exact.chunks(half));
            let run = &run;
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || run(part))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let total = self.queries.len().max(1) as f64;
        let mut mean = Searches::default();
        for sum in sums {
            for ef in 0..EFS.len() {
                mean.visited[ef] += sum.visited[ef] / total;
                (0..KS.len()).for_each(|k| mean.recall[ef][k] += sum.recall[ef][k] / total);
            }
        }
        mean
    }
}

impl Searches {
    /// Where these recalls are least against others: the difference, and its ef and k.
    pub fn worst(&self, others: &Self) -> (f64, usize, usize) {
        let each = (0..EFS.len()).flat_map(|ef| (0..KS.len()).map(move |k| (ef, k)));
        let asked = each.filter(|&(ef, k)| KS[k] <= EFS[ef]);
        let difference = asked.map(|(ef, k)| (self.recall[ef][k] - others.recall[ef][k], EFS[ef], KS[k]));
        difference.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
    }
}

/// The distances of the nearest rows of each query, in order.
fn exact(rows: &[Vec<u8>], queries: &[Vec<u8>], kernel: Kernel) -> Vec<Vec<f32>> {
    let k = KS[KS.len() - 1].min(rows.len());
    let nearest = |query: &Vec<u8>| {
        let mut distances: Vec<f32> = rows.iter().map(|row| kernel(query, row)).collect();
        if k > 0 {
            distances.select_nth_unstable_by(k - 1, f32::total_cmp);
        }
        distances.truncate(k);
        distances.sort_unstable_by(f32::total_cmp);
        distances
    };
    let half = queries.len().div_ceil(2).max(1);
    let run = |part: &[Vec<u8>]| part.iter().map(nearest).collect::<Vec<_>>();
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = queries.chunks(half).map(|part| scope.spawn(move || run(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}
