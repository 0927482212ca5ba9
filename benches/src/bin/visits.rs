//! Searches an index in its file, whoever built it: recall@10, index tuples visited and pages read per query.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use benches::{Found, MetricName, exact_neighbors, read_values};
use clap::Parser;
use distance::{Elements, Metric};
use graph::ValueType;
use hnsw::Links;
use pages::{Datum, FileSource, MetaPage, PAGE_SIZE, Page, PageSource, Tid, Tuple};

/// Searches the file of an hnsw index of `vector`s.
#[derive(Parser)]
struct Arguments {
    /// The index's file
    index: PathBuf,
    /// `.npy` file of the queries
    queries: PathBuf,
    #[arg(long, value_enum, default_value = "l2")]
    metric: MetricName,
    /// Values of ef_search
    #[arg(long, value_delimiter = ',', default_value = "10,20,30,40,60,80,100,150,200,300,400")]
    ef: Vec<usize>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let metric = Metric::from(arguments.metric);
    let index = Index::read(&arguments.index)?;
    let queries = read_values(&arguments.queries, metric)?;
    let len = queries.first().context("no queries")?.len();
    ensure!(index.values.iter().all(|value| value.len() == len), "queries and index differ in dimensions");
    let kernel = distance::kernel(Elements::F32, metric).context("no kernel")?;
    let exact = exact_neighbors(&index.values, &queries, kernel);
    for ef in arguments.ef {
        let mut found = Found { queries: queries.len(), ..Found::default() };
        for (query, exact) in queries.iter().zip(&exact) {
            // The meta page is read first.
            let (mut elements, mut lists) = (HashSet::from([0]), HashSet::new());
            let mut distances = 0;
            let distance = |element: u32| {
                distances += 1;
                elements.insert(index.places[element as usize].0);
                kernel(query, &index.values[element as usize])
            };
            let results =
                hnsw::search_with(&index, distance, |element| _ = lists.insert(index.places[element as usize].1), ef);
            found.hits += results.iter().take(10).filter(|&&element| exact.contains(&(element as usize))).count();
            found.distances += distances;
            found.pages += elements.union(&lists).count() as u64;
        }
        println!("{}", found.line(ef));
    }
    Ok(())
}

/// What a search needs of an index.
struct Index {
    entry: Option<(u32, u8)>,
    values: Vec<Vec<u8>>,
    /// Blocks of each element and of its neighbors.
    places: Vec<(u32, u32)>,
    /// By element and layer: the slots that are in use.
    lists: Vec<Vec<Vec<u32>>>,
}

impl Index {
    fn read(path: &Path) -> Result<Self> {
        let mut source = FileSource::open(path)?;
        let mut raw = vec![[0u8; PAGE_SIZE]; source.blocks() as usize];
        for (block, page) in (0..).zip(&mut raw) {
            source.read(block, page)?;
        }
        let page = |block: usize| Page::parse(block as u32, &raw[block]);
        let meta = MetaPage::parse(&page(0)?)?;
        let (mut numbers, mut owners, mut elements) = (HashMap::new(), HashMap::new(), Vec::new());
        for block in 1..raw.len() {
            for item in page(block)?.items() {
                let Tuple::Element(element) = Tuple::parse(&item?)? else { continue };
                let datum = Datum::parse(ValueType::Vector, meta.dims, element.tid(), element.data())?;
                let number = elements.len() as u32;
                numbers.insert(element.tid(), number);
                owners.insert(element.neighbor_tid(), number);
                elements.push((
                    element.level(),
                    datum.value.concat(),
                    element.tid().block,
                    element.neighbor_tid().block,
                ));
            }
        }
        let m = usize::from(meta.m);
        let mut lists = vec![Vec::new(); elements.len()];
        for block in 1..raw.len() {
            for item in page(block)?.items() {
                let Tuple::Neighbor(tuple) = Tuple::parse(&item?)? else { continue };
                let Some(&owner) = owners.get(&tuple.tid()) else { continue };
                let level = usize::from(elements[owner as usize].0);
                let slots: Vec<Tid> = tuple.slots().collect();
                lists[owner as usize] = (0..=level)
                    .map(|layer| {
                        let start = (level - layer) * m;
                        let slots = slots.iter().skip(start).take(if layer == 0 { 2 * m } else { m });
                        slots.filter_map(|tid| numbers.get(tid).copied()).collect()
                    })
                    .collect();
            }
        }
        let entry = numbers.get(&meta.entry).map(|&entry| (entry, elements[entry as usize].0));
        Ok(Self {
            entry,
            places: elements.iter().map(|element| (element.2, element.3)).collect(),
            values: elements.into_iter().map(|element| element.1).collect(),
            lists,
        })
    }
}

impl Links for Index {
    fn entry(&self) -> Option<(u32, u8)> {
        self.entry
    }

    fn neighbors(&self, element: u32, layer: u8) -> &[u32] {
        self.lists[element as usize].get(usize::from(layer)).map_or(&[], Vec::as_slice)
    }
}
