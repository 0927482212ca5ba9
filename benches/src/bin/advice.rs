//! Takes advice on a sample of a vector set, builds the advised indexes of the whole set, and compares expected with measured figures.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use advise::{Choice, Question, Values, advise};
use anyhow::{Context, Result};
use benches::nearest_distances;
use clap::Parser;
use distance::{Elements, Kernel, Metric};
use graph::{HeapTid, ValueType};
use harness::{Vectors, cpu_seconds, synthetic};
use hnsw::{BuildSpec, Control, EngineKind, Finished, Pool, RowBatch, Searcher};
use pages::{IndexMeta, Layout, PAGE_SIZE};

/// Rows per batch for the engine.
const BATCH: usize = 1000;

/// Takes advice on a sample of a set, and carries it out on the whole set.
#[derive(Parser)]
struct Arguments {
    /// `.npy` file of the vectors, or `ROWSxDIMS` to generate embeddings
    base: String,
    /// `.npy` file of the queries for the whole set; generated vectors come with queries
    queries: Option<PathBuf>,
    /// l2, ip or cosine
    #[arg(long, value_parser = benches::metric, default_value = "cosine")]
    metric: Metric,
    /// The number of vectors to use, from all parts of the file [default: all]
    #[arg(long)]
    rows: Option<u64>,
    /// Sampling rate of the advice: one of this many rows
    #[arg(long, default_value_t = 4)]
    share: usize,
    #[arg(short, value_delimiter = ',', default_value = "1,10,100")]
    k: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_value = "0.9,0.95,0.99")]
    target: Vec<f64>,
    /// Builds of the whole set, of which the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Random seed of the advice
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; 0 takes one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// The values in one column type, and queries in the same type.
struct Form {
    rows: Values,
    queries: Values,
}

/// An index of the whole set.
struct Whole {
    finished: Finished,
    /// Seconds of the median build.
    seconds: f64,
    cpu: f64,
    /// CPU seconds of a build of the sample, extrapolated by n log n.
    cpu_scaled: f64,
    bytes: u64,
}

/// What all questions share.
struct Scene {
    own: Form,
    forms: HashMap<&'static str, Form>,
    wholes: HashMap<(&'static str, u16, u16), Whole>,
    /// For each query, the distances of the nearest rows, ascending.
    exact: Vec<Vec<f32>>,
    metric: Metric,
    kernel: Kernel,
    pool: Arc<Pool>,
    dims: u32,
    repeat: usize,
    share: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let metric = arguments.metric;
    let (base, queries) = match &arguments.queries {
        Some(queries) => (Vectors::read(arguments.base.as_ref())?, Vectors::read(queries)?),
        None => {
            let (rows, dims) = arguments.base.split_once('x').context("neither queries nor ROWSxDIMS")?;
            synthetic(rows.parse()?, 1000, dims.parse()?, 11)
        }
    };
    let base = match arguments.rows {
        Some(most) if most < base.rows() as u64 => {
            let rows = pages::one_of_each_part(most, base.rows() as u64);
            Vectors::new(base.dims(), rows.flat_map(|row| base.row(row as usize)).copied().collect())
        }
        _ => base,
    };
    let dims = base.dims() as u32;
    let encoded = |vectors: &Vectors, step: usize| {
        let mut values = Values::new(ValueType::Vector, dims);
        for row in (0..vectors.rows()).step_by(step) {
            values.extend(&vectors.row(row).iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(), []);
        }
        values
    };
    let sample = encoded(&base, arguments.share);
    let own = Form { rows: encoded(&base, 1).prepared(metric), queries: encoded(&queries, 1).prepared(metric) };
    let kernel = distance::kernel(Elements::F32, metric).context("no kernel")?;
    let pool = Arc::new(Pool::new(arguments.threads)?);
    let k = arguments.k.iter().copied().max().unwrap_or(1);
    let exact = nearest_distances(&all(&own.rows), &all(&own.queries), kernel, k);
    let (forms, wholes, repeat, share) = (HashMap::new(), HashMap::new(), arguments.repeat, arguments.share);
    let mut scene = Scene { own, forms, wholes, exact, metric, kernel, pool: pool.clone(), dims, repeat, share };

    println!("{} x {dims}, advice on {} rows, {} queries", base.rows(), sample.len(), queries.rows());
    println!(
        "| k | target | type | m | ef_construction | ef_search | recall | found | visited | found | MB | found | build s | found | CPU s | found | remedy |"
    );
    println!("|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    for &k in &arguments.k {
        for &target in &arguments.target {
            let (value_type, rows) = (ValueType::Vector, base.rows() as u64);
            let question =
                Question { value_type, metric, dims, rows, target, k, own_type: false, seed: arguments.seed };
            let none = Values::new(value_type, dims);
            let advice = advise(&question, sample.clone(), none, EngineKind::Bulk, &pool, &Control::default())?;
            for choice in &advice.choices {
                scene.carry_out(&question, choice)?;
            }
        }
    }
    Ok(())
}

impl Scene {
    /// Builds the index of a choice unless it exists, searches it as advised, and prints a line.
    fn carry_out(&mut self, question: &Question, choice: &Choice) -> Result<()> {
        let name = choice.value_type.name();
        if let Entry::Vacant(place) = self.forms.entry(name) {
            let converted = |values: &Values| match choice.value_type {
                ValueType::Vector => Some(values.clone()),
                other => values.converted(other),
            };
            let converted = converted(&self.own.rows).zip(converted(&self.own.queries));
            let (rows, queries) = converted.context("values too large for halfvec")?;
            place.insert(Form { rows, queries });
        }
        let form = &self.forms[name];
        let metric = if choice.value_type == ValueType::Bit { Metric::Hamming } else { self.metric };
        let whole = match self.wholes.entry((name, choice.m, choice.ef_construction)) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(place) => {
                let Choice { value_type, m, ef_construction, .. } = *choice;
                let spec = BuildSpec { seed: 1, ..BuildSpec::new(value_type, metric, self.dims, m, ef_construction) };
                let mut part = Values::new(choice.value_type, self.dims);
                for row in (0..form.rows.len()).step_by(self.share) {
                    part.extend(form.rows.get(row), []);
                }
                let sampled = Whole::build(spec.clone(), &part, &self.pool, self.repeat)?;
                let mut whole = Whole::build(spec, &form.rows, &self.pool, self.repeat)?;
                let work = |rows: usize| rows as f64 * (rows as f64).ln();
                whole.cpu_scaled = sampled.cpu * work(form.rows.len()) / work(part.len());
                place.insert(whole)
            }
        };
        let kernel = distance::kernel(Elements::of(choice.value_type), metric).context("no kernel")?;
        let (k, ef) = (question.k, usize::from(choice.ef_search));
        let (mut searcher, mut visited, mut hits) = (Searcher::default(), 0u64, 0);
        for (query, exact) in self.exact.iter().enumerate() {
            let distance = |element| {
                visited += 1;
                kernel(form.queries.get(query), whole.finished.values.value(element))
            };
            let found = searcher.search(&whole.finished.graph, distance, |_| {}, ef);
            let tids = found.iter().flat_map(|near| whole.finished.graph.heap_tids().of(near.element()));
            let answers = if choice.reranked > 0 { ef } else { k };
            let near = tids.take(answers).filter(|tid| {
                let row = self.own.rows.get(tid.block() as usize);
                (self.kernel)(self.own.queries.get(query), row) <= exact[k - 1]
            });
            hits += near.count().min(k);
        }
        let queries = self.exact.len() as f64;
        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "| {k} | {} | {name} | {} | {} | {ef} | {:.3} | {:.3} | {:.0} | {:.0} | {:.1} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            question.target,
            choice.m,
            choice.ef_construction,
            choice.recall,
            hits as f64 / (queries * k as f64),
            choice.visited,
            visited as f64 / queries,
            megabytes(choice.index_bytes),
            megabytes(whole.bytes),
            choice.build_seconds,
            whole.seconds,
            whole.cpu_scaled,
            whole.cpu,
            whole.finished.report.remedy.name(),
        );
        Ok(())
    }
}

impl Whole {
    fn build(spec: BuildSpec, rows: &Values, pool: &Arc<Pool>, repeat: usize) -> Result<Self> {
        let mut builds = Vec::new();
        for _ in 0..repeat.max(1) {
            let spec = BuildSpec { expected_rows: rows.len() as u64, ..spec.clone() };
            let (started, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
            let mut engine = hnsw::start(EngineKind::Bulk, spec, pool.clone(), Control::default())?;
            for first in (0..rows.len()).step_by(BATCH) {
                let batch = first..(first + BATCH).min(rows.len());
                let tids: Vec<_> = batch.clone().map(|row| HeapTid::new(row as u32, 1)).collect();
                let values: Vec<u8> = batch.flat_map(|row| rows.get(row)).copied().collect();
                engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] })?;
            }
            let finished = engine.finish()?;
            let cpu = cpu_seconds(std::process::id()) - cpu;
            builds.push((started.elapsed().as_secs_f64(), cpu, finished));
        }
        builds.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal));
        let (seconds, cpu, finished) = builds.swap_remove(builds.len() / 2);
        let BuildSpec { value_type, dims, m, ef_construction, .. } = spec;
        let meta = IndexMeta { value_type, dims, m, ef_construction };
        let layout = Layout::new(&finished.graph, &*finished.values, &finished.order, &meta)?;
        Ok(Self { bytes: u64::from(layout.blocks()) * PAGE_SIZE as u64, finished, seconds, cpu, cpu_scaled: 0.0 })
    }
}

fn all(values: &Values) -> Vec<&[u8]> {
    (0..values.len()).map(|row| values.get(row)).collect()
}
