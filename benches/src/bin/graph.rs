//! Builds a graph of a vector set and searches it: seconds, recall@10 and distances per query.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use graph::{HeapTid, ValueType};
use harness::Vectors;
use hnsw::{BuildSpec, Control, EngineKind, Finished, Metric, Pool, RowBatch};

#[derive(Clone, Copy, ValueEnum)]
enum MetricName {
    L2,
    Ip,
    Cosine,
}

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
    /// Queries asked
    #[arg(long, default_value_t = 300)]
    count: usize,
    /// Start of the random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; 0 takes all
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let metric = match arguments.metric {
        MetricName::L2 => Metric::L2,
        MetricName::Ip => Metric::InnerProduct,
        MetricName::Cosine => Metric::Cosine,
    };
    let base = read(&arguments.base, metric)?;
    let queries = read(&arguments.queries, metric)?;
    let dims = base[0].len() / 4;
    let kernel = distance::kernel(distance::Elements::F32, metric).context("no kernel")?;

    let spec = BuildSpec {
        value_type: ValueType::Vector,
        metric,
        dims: dims as u32,
        m: arguments.m,
        ef_construction: arguments.ef_construction,
        expected_rows: base.len() as u64,
        rows_per_element: graph::HEAP_TIDS_PER_ELEMENT as u8,
        seed: arguments.seed,
    };
    let kind = match arguments.engine {
        EngineName::Bulk => EngineKind::Bulk,
        EngineName::Usearch => EngineKind::Usearch,
    };
    let started = Instant::now();
    let finished = build(kind, spec, &base, arguments.threads)?;
    let seconds = started.elapsed().as_secs_f64();
    print!("{} x {dims}: {seconds:.2} s", base.len());

    let exact: Vec<Vec<usize>> = queries.iter().take(arguments.count).map(|q| nearest(&base, q, kernel)).collect();
    for ef in [40, 100, 200] {
        let (mut hits, distances) = (0, Cell::new(0u64));
        for (query, exact) in queries.iter().zip(&exact) {
            let distance = |element| {
                distances.set(distances.get() + 1);
                kernel(query, finished.values.value(element))
            };
            let found = hnsw::search(&finished.graph, distance, ef);
            let rows =
                found.iter().take(10).flat_map(|&e| finished.graph.heap_tids().of(e)).map(|tid| tid.block() as usize);
            hits += rows.filter(|row| exact.contains(row)).count();
        }
        let recall = hits as f64 / (10 * exact.len()) as f64;
        print!("  ef {ef} {recall:.4} ({})", distances.get() / exact.len() as u64);
    }
    println!();
    Ok(())
}

/// Vectors as the builder gets them, normalised for cosine.
fn read(path: &std::path::Path, metric: Metric) -> Result<Vec<Vec<u8>>> {
    let vectors = Vectors::read(path)?;
    let encode = |row: &[f32]| -> Vec<u8> {
        let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        let by = if metric == Metric::Cosine { norm } else { 1.0 };
        row.iter().flat_map(|&x| ((f64::from(x) / by) as f32).to_le_bytes()).collect()
    };
    Ok((0..vectors.rows()).map(|row| encode(vectors.row(row))).collect())
}

fn build(kind: EngineKind, spec: BuildSpec, base: &[Vec<u8>], threads: usize) -> Result<Finished> {
    let mut engine = hnsw::start(kind, spec, Arc::new(Pool::new(threads)?), Control::default())?;
    for (at, batch) in base.chunks(100).enumerate() {
        let tids: Vec<_> = (0..batch.len()).map(|row| HeapTid::new((100 * at + row) as u32, 1)).collect();
        engine.add(RowBatch { tids: &tids, values: &batch.concat(), lengths: &[] })?;
    }
    Ok(engine.finish()?)
}

fn nearest(base: &[Vec<u8>], query: &[u8], kernel: distance::Kernel) -> Vec<usize> {
    let mut rows: Vec<(f32, usize)> = base.iter().enumerate().map(|(row, value)| (kernel(query, value), row)).collect();
    rows.select_nth_unstable_by(9, |a, b| a.0.total_cmp(&b.0));
    rows[..10].iter().map(|&(_, row)| row).collect()
}
