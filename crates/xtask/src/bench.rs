//! `cargo xtask bench`: builds of the same index by several means, in turn on the same machine; and the benchmarks of `documents`.

use anyhow::Result;

mod cold;
mod contest;
mod documents;
mod figures;
mod flags;
mod floor;
mod hard;
mod markdown;
mod memory;
mod options;
mod peer;
mod plot;
mod programs;
mod report;
mod results;
mod scaling;
mod set;
mod stage;
mod venv;
mod warm;
mod watch;
mod wordnet;

use crate::step;
use contest::alternate;
use documents::{Benchmark, Sizes};
use figures::Figures;
use options::{BenchOptions, Case, Part};
use peer::{Peer, Tools};
use results::Results;
use set::Set;
use stage::Stage;

/// ef_search values at which recall is compared.
const EF_SEARCH: [u32; 3] = [40, 100, 200];
const NEIGHBORS: usize = 10;

/// What `cargo xtask bench` is to do.
#[derive(Debug, PartialEq)]
pub enum Bench {
    /// Shows a text.
    Help(String),
    /// Compares builds.
    Builds(BenchOptions),
    /// Compares builds of hard data; the words are for the program that does it.
    Hard(Vec<String>),
    /// Reproduces what documents have measured.
    Documents(Vec<Benchmark>, Sizes),
}

/// Reads the words behind `bench`.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Bench> {
    let mut words = words.peekable();
    if words.peek().is_some_and(|word| word == "hard") {
        return Ok(Bench::Hard(words.skip(1).collect()));
    }
    let Some(benchmarks) = words.peek().and_then(|word| Benchmark::of(word)) else {
        let help = || Bench::Help(format!("{}\n\n{}\n\n{}", options::USAGE, hard::USAGE, documents::USAGE));
        return Ok(options::parse(words)?.map_or_else(help, Bench::Builds));
    };
    let help = || Bench::Help(documents::USAGE.to_owned());
    Ok(documents::parse(words.skip(1))?.map_or_else(help, |sizes| Bench::Documents(benchmarks, sizes)))
}

/// Measures, and writes a report with plots.
pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Help(text) => {
            println!("{text}");
            Ok(())
        }
        Bench::Hard(words) => hard::run(words),
        Bench::Builds(options) => compare_builds(options),
        Bench::Documents(benchmarks, sizes) => documents::run(benchmarks, sizes),
    }
}

fn compare_builds(options: &BenchOptions) -> Result<()> {
    let tools = Tools::prepare(options)?;
    let mut results = Results::new(&options.name, &tools.config)?;
    for name in &options.sets {
        let set = Set::find(name, options)?;
        let mut stage = step::timed("starting a cluster and loading the set", || Stage::new(&tools, options, &set))?;
        results.heading(&set.title());
        if options.parts.contains(&Part::Builds) {
            builds(&mut stage, options, &set, &mut results)?;
        }
        if options.parts.contains(&Part::Floor) {
            results.table("Floor", &floor::measure(&mut stage, options)?);
        }
        if options.parts.contains(&Part::Scaling) {
            results.table("Scaling, graph only", &scaling::measure(&stage, options, &set)?);
        }
        results.write()?;
    }
    println!("\n{}\n\nwritten to {}", results.text(), results.path().display());
    Ok(())
}

/// All peers at all settings, a table for each setting and one plot.
fn builds(stage: &mut Stage<'_>, options: &BenchOptions, set: &Set, results: &mut Results) -> Result<()> {
    let mut all: Vec<(Case, Vec<(Peer, Figures)>)> = Vec::new();
    for case in options.cases() {
        let peers: Vec<Peer> = stage.peers(options);
        let rounds = alternate(options.rounds, &peers, |round, peer| {
            let figures = stage.build(peer, case, round == 0)?;
            println!("{case}, round {}, {}: {}", round + 1, peer.name(), figures.line());
            Ok(figures)
        })?;
        let medians: Vec<_> = peers.into_iter().zip(rounds.iter().map(|rounds| Figures::median(rounds))).collect();
        results.table(&case.to_string(), &report::building(&medians));
        results.table("Per query, at each ef_search", &report::searching(&medians));
        if let Some(table) = report::equal_recall(&medians) {
            results.table("Per query, where the index finds as much as the database's at each ef_search", &table);
        }
        results.raw(&case.to_string(), &report::raw(&medians, &rounds));
        all.push((case, medians));
    }
    results.plot(&set.file_name(), &report::recall_plot(&set.title(), &all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_the_benchmark() {
        let parsed = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(parsed("").unwrap(), Bench::Builds(BenchOptions::default()));
        assert_eq!(parsed("insert").unwrap(), Bench::Documents(vec![Benchmark::Insert], Sizes::default()));
        assert!(matches!(parsed("insert,search").unwrap(), Bench::Documents(two, _) if two.len() == 2));
        assert!(matches!(parsed("documents").unwrap(), Bench::Documents(all, _) if all == Benchmark::ALL));
        assert_eq!(
            parsed("hard crowd --rows 100").unwrap(),
            Bench::Hard(["crowd", "--rows", "100"].map(str::to_owned).into())
        );
        assert!(matches!(parsed("offload --help").unwrap(), Bench::Help(_)));
        assert!(parsed("--rows 100 insert").is_err());
    }
}
