//! Searches any hnsw index file. Prints recall@10, and index tuples visited and pages read per query.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use benches::{Found, Index, nearest_distances, read_values};
use clap::Parser;
use distance::{Elements, Metric};
use graph::ValueType;
use hnsw::Searcher;

/// Searches the file of an hnsw index on `vector`s.
#[derive(Parser)]
struct Arguments {
    /// The index's file
    index: PathBuf,
    /// `.npy` file of the queries
    queries: PathBuf,
    /// l2, ip or cosine
    #[arg(long, value_parser = benches::metric, default_value = "l2")]
    metric: Metric,
    /// Values of ef_search
    #[arg(long, value_delimiter = ',', default_value = "10,20,30,40,60,80,100,150,200,300,400")]
    ef: Vec<usize>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let metric = arguments.metric;
    let index = Index::read(&arguments.index, ValueType::Vector)?;
    let queries = read_values(&arguments.queries, metric)?;
    let len = queries.first().context("no queries")?.len();
    ensure!(index.values.iter().all(|value| value.len() == len), "queries and index differ in dimensions");
    let kernel = distance::kernel(Elements::F32, metric).context("no kernel")?;
    let exact = nearest_distances(&index.values, &queries, kernel, 10);
    for ef in arguments.ef {
        let mut found = Found { queries: queries.len(), ..Found::default() };
        for (query, exact) in queries.iter().zip(&exact) {
            // Every search reads the meta page first.
            let (mut elements, mut lists) = (HashSet::from([0]), HashSet::new());
            let mut distances = 0;
            let distance = |element: u32| {
                distances += 1;
                elements.insert(index.places[element as usize].0);
                kernel(query, &index.values[element as usize])
            };
            let expand = |element| _ = lists.insert(index.places[element as usize].1);
            let results = Searcher::default().search(&index, distance, expand, ef);
            let near = results.iter().take(10).filter(|near| Some(&near.distance()) <= exact.last());
            found.hits += near.count();
            found.distances += distances;
            found.pages += elements.union(&lists).count() as u64;
        }
        println!("{}", found.line(ef));
    }
    Ok(())
}
