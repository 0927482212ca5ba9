//! The program behind `cargo xtask bench`: compares builds of an index by several means, builds hard
//! data, and repeats measurements of articles.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use harness::step;

mod ablation;
mod cold;
mod contest;
mod documents;
mod figures;
mod flags;
mod floor;
mod hard;
mod indexed;
mod markdown;
mod memory;
mod options;
mod peer;
mod programs;
mod report;
mod results;
mod rows;
mod scaling;
mod set;
mod stage;
mod venv;
mod warm;
mod watch;
mod wear;
mod wordnet;

use ablation::Ablation;
use contest::alternate;
use documents::Documents;
use figures::Figures;
use floor::Floor;
use hard::Hard;
use options::{BenchOptions, Case};
use peer::{Peer, Tools};
use results::Results;
use rows::Rows;
use scaling::Scaling;
use set::Set;
use stage::Stage;
use wear::Wear;

/// Values of ef_search at which recall is compared.
const EF_SEARCH: [u32; 3] = [40, 100, 200];
const NEIGHBORS: usize = 10;

/// Compares builds of the same index by several means, alternating on the same machine, and writes a report to benches/results
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Option<Benchmark>,
    #[command(flatten)]
    builds: BenchOptions,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Measure what each pass of the engine gains
    Ablation(Ablation),
    /// Compare builds of data that is hard for graph builders
    Hard(Hard),
    /// Measure the database's side of a build with a replayed builder, and compute the critical path
    Floor(Floor),
    /// Repeat measurements of articles about pgvector
    Documents(Documents),
    /// Measure how the engine's cost and recall change with the number of rows
    Rows(Rows),
    /// Measure the engine with few threads, and compute its time with many
    Scaling(Scaling),
    /// Measure wear by updates and deletes, repair by VACUUM and `lantern-index maintain`, and inserts against rebuilds
    Wear(Wear),
}

fn main() -> ExitCode {
    let Arguments { benchmark, builds } = Arguments::parse();
    let result = match &benchmark {
        None => compare_builds(&builds),
        Some(Benchmark::Ablation(ablation)) => ablation::run(ablation),
        Some(Benchmark::Hard(hard)) => hard::run(hard),
        Some(Benchmark::Floor(floor)) => floor::run(floor),
        Some(Benchmark::Documents(documents)) => documents::run(documents),
        Some(Benchmark::Rows(rows)) => rows::run(rows),
        Some(Benchmark::Scaling(scaling)) => scaling::run(scaling),
        Some(Benchmark::Wear(wear)) => wear::run(wear),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare_builds(options: &BenchOptions) -> Result<()> {
    let libraries = options.peers.iter().any(|peer| matches!(peer, Peer::Hnswlib | Peer::Faiss));
    let tools = Tools::find(libraries)?;
    let mut results = Results::new(&options.name, &tools.config)?;
    for name in &options.sets {
        let set = Set::find(name, &options.set)?;
        let mut stage = step::timed("starting a cluster and loading the set", || Stage::new(&tools, options, &set))?;
        results.heading(&set.title());
        builds(&mut stage, options, &set, &mut results)?;
        results.write()?;
    }
    results.finish()
}

/// Measures all peers with all options: a table for each combination of options, and one plot.
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
        let parse = |line: &str| Arguments::try_parse_from(["bench"].into_iter().chain(line.split_whitespace()));
        assert!(matches!(parse("--rows 100"), Ok(Arguments { benchmark: None, .. })));
        assert!(matches!(
            parse("documents insert,search --rows 5"),
            Ok(Arguments { benchmark: Some(Benchmark::Documents(_)), .. })
        ));
        assert!(matches!(parse("hard crowd --rows 100"), Ok(Arguments { benchmark: Some(Benchmark::Hard(_)), .. })));
        assert!(matches!(parse("floor --rows 5 --no-tls"), Ok(Arguments { benchmark: Some(Benchmark::Floor(_)), .. })));
        assert!(parse("--rows 100 documents").is_err());
        assert!(parse("documents dance").is_err());
    }

    #[test]
    fn commands_are_taken_as_documented() {
        let commands = harness::documented_commands("cargo xtask bench").unwrap();
        assert!(commands.len() > 10, "few commands are found: {commands:?}");
        for command in commands {
            let parsed = Arguments::try_parse_from(std::iter::once("bench".to_owned()).chain(command.shown.clone()));
            let error = parsed.err().filter(|error| error.kind() != clap::error::ErrorKind::DisplayHelp);
            assert!(error.is_none(), "{command:?}: {}", error.unwrap());
        }
    }
}
