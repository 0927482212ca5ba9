//! Cost and recall by number of rows: graphs of synthetic sets, whose rows are drawn while they are added, so that they are in memory once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use benches::{Found, Memory, nearest_distances};
use clap::Args;
use distance::{Elements, Kernel, Metric};
use graph::{HeapTid, ValueType};
use half::f16;
use harness::{Column, PgConfig, Vectors, cpu_seconds, step, synthetic, synthetic_part};
use hnsw::{BuildSpec, Control, EngineKind, Finished, Pool, RowBatch, Searcher, Storage};

use super::flags;
use super::markdown::Table;
use super::results::Results;
use super::set::SEED;
use super::{EF_SEARCH, NEIGHBORS};

/// Rows drawn at a time.
const PART: usize = 100_000;
/// Rows in a batch of the client's, about as many as fit into 64 KiB.
const BATCH: usize = 200;

/// Numbers of rows, and options of the index.
#[derive(Args)]
pub struct Rows {
    /// Numbers of rows
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1000000,2000000,4000000")]
    rows: Vec<usize>,
    #[arg(long, default_value_t = 128)]
    dims: usize,
    /// Column type: vector or halfvec
    #[arg(long = "type", value_name = "T", value_parser = flags::column, default_value = "halfvec")]
    column: Column,
    #[arg(long, default_value_t = 16)]
    m: u16,
    #[arg(long, default_value_t = 64)]
    ef_construction: u16,
    #[arg(long, default_value_t = 500)]
    queries: usize,
    /// bulk or insertion
    #[arg(long, value_name = "E", value_parser = engine, default_value = "bulk")]
    engine: EngineKind,
    /// Store the values in a file in this folder
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// Name of the report in benches/results
    #[arg(long, default_value = "rows")]
    name: String,
}

fn engine(word: &str) -> Result<EngineKind, String> {
    let kind = [EngineKind::Bulk, EngineKind::Insertion].into_iter().find(|kind| kind.name() == word);
    kind.ok_or_else(|| "bulk or insertion is needed".to_owned())
}

/// Measures, and writes a report.
pub fn run(arguments: &Rows) -> Result<()> {
    let mut results = Results::new(&arguments.name, &PgConfig::require()?)?;
    let Rows { dims, m, ef_construction, .. } = arguments;
    let (column, engine) = (arguments.column.name(), arguments.engine.name());
    results.heading(&format!("{column}({dims}), cosine, m = {m}, ef_construction = {ef_construction}, {engine}"));
    let head = ["rows", "intake s", "graph s", "µs a row", "CPU s", "CPU µs a row", "peak MB", "MB of values"];
    let searched = EF_SEARCH.map(|ef| [format!("recall at {ef}"), format!("visited at {ef}")]);
    let mut table = Table::new(head.map(str::to_owned).into_iter().chain(searched.into_iter().flatten()));
    for &rows in &arguments.rows {
        table.row(step::timed(&format!("{rows} rows"), || arguments.measure(rows))?);
        println!("{}", table.render());
    }
    results.table("One build each", &table);
    results.write()?;
    println!("written to {}", results.path().display());
    Ok(())
}

impl Rows {
    /// Builds a graph of `rows` rows and searches it. Returns a row of the table.
    fn measure(&self, rows: usize) -> Result<Vec<String>> {
        let value_type = self.column.value_type();
        let kernel = distance::kernel(Elements::of(value_type), Metric::Cosine).context("no kernel")?;
        let spec = BuildSpec {
            expected_rows: rows as u64,
            ..BuildSpec::new(value_type, Metric::Cosine, self.dims as u32, self.m, self.ef_construction)
        };
        let storage = self.spool.clone().map_or_else(Storage::default, Storage::with_spool);
        storage.spool();
        let memory = Memory::watch();
        let pool = Arc::new(Pool::new(0)?);
        let mut engine = hnsw::start_in(storage, self.engine, spec, pool, Control::default())?;
        let (mut intake, mut cpu) = (0.0, 0.0);
        let mut measured = |work: &mut dyn FnMut() -> Result<()>| {
            let (begun, before) = (Instant::now(), cpu_seconds(std::process::id()));
            work()?;
            cpu += cpu_seconds(std::process::id()) - before;
            anyhow::Ok(begun.elapsed().as_secs_f64())
        };
        for first in (0..rows).step_by(PART) {
            let part = synthetic_part(first..rows.min(first + PART), self.dims, SEED);
            let values: Vec<Vec<u8>> = (0..part.rows()).map(|row| encode(&part, row, value_type)).collect();
            drop(part);
            intake += measured(&mut || {
                for (at, batch) in values.chunks(BATCH).enumerate() {
                    let begin = first + at * BATCH;
                    let tids: Vec<_> = (0..batch.len()).map(|row| HeapTid::new((begin + row) as u32, 1)).collect();
                    engine.add(RowBatch { tids: &tids, values: &batch.concat(), lengths: &[] })?;
                }
                Ok(())
            })?;
        }
        let (mut engine, mut finished) = (Some(engine), None);
        let graph = measured(&mut || {
            finished = engine.take().map(hnsw::Engine::finish).transpose()?;
            Ok(())
        })?;
        let finished = finished.context("the engine has finished")?;
        let peak = memory.peak();
        println!("{:?}", finished.report);
        let each = |seconds: f64| format!("{:.1}", 1e6 * seconds / rows as f64);
        let bytes = rows * value_type.value_len(self.dims as u32).unwrap_or_default();
        let mut line = vec![rows.to_string(), format!("{intake:.1}"), format!("{graph:.1}"), each(graph)];
        line.extend([format!("{cpu:.1}"), each(cpu), (peak / 1_000_000).to_string(), (bytes / 1_000_000).to_string()]);
        println!("{}", line.join("  "));
        line.extend(self.searched(&finished, kernel, value_type));
        Ok(line)
    }

    /// Recall@10 and elements visited, at each ef_search.
    fn searched(&self, finished: &Finished, kernel: Kernel, value_type: ValueType) -> Vec<String> {
        let (_, queries) = synthetic(0, self.queries, self.dims, SEED);
        let queries: Vec<Vec<u8>> = (0..queries.rows()).map(|row| encode(&queries, row, value_type)).collect();
        let queries: Vec<&[u8]> = queries.iter().map(Vec::as_slice).collect();
        let values: Vec<&[u8]> =
            (0..finished.order.len() as u32).map(|element| finished.values.value(element)).collect();
        let exact = nearest_distances(&values, &queries, kernel, NEIGHBORS);
        let at = |ef: u32| {
            let mut found = Found { queries: queries.len(), ..Found::default() };
            for (query, exact) in queries.iter().zip(&exact) {
                let farthest = exact.last().copied().unwrap_or_default();
                let mut visited = 0;
                let distance = |element| {
                    visited += 1;
                    kernel(query, finished.values.value(element))
                };
                let near = Searcher::default().search(&finished.graph, distance, |_| {}, ef as usize);
                found.hits += near.iter().take(NEIGHBORS).filter(|near| near.distance() <= farthest).count();
                found.distances += visited;
            }
            [format!("{:.4}", found.recall()), format!("{:.0}", found.distances as f64 / queries.len() as f64)]
        };
        EF_SEARCH.into_iter().flat_map(at).collect()
    }
}

/// A row as the builder receives it.
fn encode(vectors: &Vectors, row: usize, value_type: ValueType) -> Vec<u8> {
    let row = vectors.row(row).iter();
    match value_type {
        ValueType::HalfVec => row.flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        _ => row.flat_map(|x| x.to_le_bytes()).collect(),
    }
}
