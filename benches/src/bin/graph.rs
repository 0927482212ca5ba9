//! Builds a graph of a vector set and searches it. Prints seconds, CPU seconds, recall@10 and distances per query.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use benches::{EF_SEARCH, Found, Memory, MetricName, exact_neighbors, read_values};
use clap::{Parser, ValueEnum};
use graph::{HeapTid, ValueType};
use harness::cpu_seconds;
use hnsw::{BuildSpec, Control, EngineKind, Finished, Metric, Pool, Report, RowBatch, Searcher};

#[derive(Clone, Copy, ValueEnum)]
enum EngineName {
    Bulk,
    Usearch,
}

/// Builds a graph of a vector set and searches it.
#[derive(Parser)]
struct Arguments {
    /// `.npy` file of the vectors
    base: PathBuf,
    /// `.npy` file of the queries
    queries: PathBuf,
    #[arg(long, value_enum, default_value = "l2")]
    metric: MetricName,
    #[arg(long, value_enum, default_value = "bulk")]
    engine: EngineName,
    #[arg(long, default_value_t = 16)]
    m: u16,
    #[arg(long, default_value_t = 64)]
    ef_construction: u16,
    /// Number of queries
    #[arg(long, default_value_t = 300)]
    count: usize,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; 0 takes one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let metric = Metric::from(arguments.metric);
    let base = read_values(&arguments.base, metric)?;
    let mut queries = read_values(&arguments.queries, metric)?;
    queries.truncate(arguments.count);
    let dims = base[0].len() / 4;
    let kernel = distance::kernel(distance::Elements::F32, metric).context("no kernel")?;

    let spec = BuildSpec {
        expected_rows: base.len() as u64,
        seed: arguments.seed,
        ..BuildSpec::new(ValueType::Vector, metric, dims as u32, arguments.m, arguments.ef_construction)
    };
    let kind = match arguments.engine {
        EngineName::Bulk => EngineKind::Bulk,
        EngineName::Usearch => EngineKind::Usearch,
    };
    let batches: Vec<_> = base.chunks(100).map(|batch| batch.concat()).collect();
    let memory = Memory::watch();
    let (started, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
    let finished = build(kind, spec, &batches, arguments.threads)?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds(std::process::id()) - cpu;
    println!("{} x {dims} seconds {seconds:.3} CPU seconds {cpu:.2} peak {}", base.len(), memory.peak());
    let Report { recall, lost, remedy, .. } = finished.report;
    println!("the guard found {recall:.3}, lost {lost:.4}, remedy {}", remedy.name());

    let exact = exact_neighbors(&base, &queries, kernel);
    for ef in EF_SEARCH {
        let mut found = Found { queries: queries.len(), ..Found::default() };
        let distances = Cell::new(0);
        for (query, exact) in queries.iter().zip(&exact) {
            let distance = |element| {
                distances.set(distances.get() + 1);
                kernel(query, finished.values.value(element))
            };
            let results = Searcher::default().search(&finished.graph, distance, |_| {}, ef);
            let tids = results.iter().take(10).flat_map(|near| finished.graph.heap_tids().of(near.element()));
            found.hits += tids.filter(|tid| exact.contains(&(tid.block() as usize))).count();
        }
        found.distances = distances.get();
        println!("{}", found.line(ef));
    }
    Ok(())
}

/// Builds a graph from batches of values.
fn build(kind: EngineKind, spec: BuildSpec, batches: &[Vec<u8>], threads: usize) -> Result<Finished> {
    let value_len = 4 * spec.dims as usize;
    let mut engine = hnsw::start(kind, spec, Arc::new(Pool::new(threads)?), Control::default())?;
    let mut row = 0..;
    for values in batches {
        let tids: Vec<_> = row.by_ref().take(values.len() / value_len).map(|row| HeapTid::new(row, 1)).collect();
        engine.add(RowBatch { tids: &tids, values, lengths: &[] })?;
    }
    Ok(engine.finish()?)
}
