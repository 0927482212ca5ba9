//! Builds a graph of a vector set and searches it. Prints seconds, CPU seconds, recall@10, distances and pages per query.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use benches::{EFS, GraphSet, Memory, Searches, read_values};
use clap::{Parser, ValueEnum};
use graph::ValueType;
use harness::cpu_seconds;
use hnsw::{BuildSpec, EngineKind, Metric, Report};

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
    /// l2, ip or cosine
    #[arg(long, value_parser = benches::metric, default_value = "l2")]
    metric: Metric,
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
    let Arguments { metric, m, ef_construction, seed, threads, .. } = arguments;
    let base = read_values(&arguments.base, metric)?;
    let mut queries = read_values(&arguments.queries, metric)?;
    queries.truncate(arguments.count);
    let dims = base.first().context("no vectors")?.len() / 4;
    let spec = BuildSpec { seed, ..BuildSpec::new(ValueType::Vector, metric, dims as u32, m, ef_construction) };
    let kind = match arguments.engine {
        EngineName::Bulk => EngineKind::Bulk,
        EngineName::Usearch => EngineKind::Usearch,
    };
    let set = GraphSet::new(spec, base, queries)?;
    let memory = Memory::watch();
    let (started, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
    let finished = set.build(kind, threads)?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds(std::process::id()) - cpu;
    println!("{} x {dims} seconds {seconds:.3} CPU seconds {cpu:.2} peak {}", set.rows(), memory.peak());
    let Report { recall, lost, remedy, .. } = finished.report;
    println!("the guard found {recall:.3}, lost {lost:.4}, remedy {}", remedy.name());
    let Searches { recall, visited } = set.search(&finished);
    let pages = set.pages_read(&finished, EFS)?;
    for (((ef, recall), visited), pages) in EFS.iter().zip(recall).zip(visited).zip(pages) {
        println!("ef {ef} recall {:.5} distances {visited:.1} pages {pages:.1}", recall[1]);
    }
    Ok(())
}
