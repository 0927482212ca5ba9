//! `cargo xtask bench documents`: repeats measurements of articles about pgvector and about external builds, at a small scale.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use harness::step;

mod ask;
mod daily_report;
mod distributed;
mod ground;
mod insert;
mod load;
mod memory;
mod offload;
mod pgbench;
mod pin;
mod search;
mod section;
mod sizes;
mod twins;

use super::results;
use daily_report::DailyReport;
use ground::Ground;
use section::Section;
use sizes::Sizes;

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Benchmark {
    Offload,
    Load,
    Insert,
    Search,
    Memory,
    Distributed,
}

/// Which benchmarks to run, and their sizes.
#[derive(Args)]
pub struct Documents {
    /// Benchmarks, separated by commas
    #[arg(value_enum, value_delimiter = ',', default_values_t = Benchmark::ALL)]
    benchmarks: Vec<Benchmark>,
    #[command(flatten)]
    sizes: Sizes,
}

impl Benchmark {
    pub const ALL: [Self; 6] = [Self::Offload, Self::Load, Self::Insert, Self::Search, Self::Memory, Self::Distributed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Offload => "offload",
            Self::Load => "load",
            Self::Insert => "insert",
            Self::Search => "search",
            Self::Memory => "memory",
            Self::Distributed => "distributed",
        }
    }

    fn measure(self, ground: &Ground) -> Result<Section> {
        match self {
            Self::Offload => offload::measure(ground),
            Self::Load => load::measure(ground),
            Self::Insert => insert::measure(ground),
            Self::Search => search::measure(ground),
            Self::Memory => memory::measure(ground),
            Self::Distributed => distributed::measure(ground),
        }
    }
}

/// Runs the benchmarks in order. Each has a section in the report, and replaces the section of an earlier run.
pub fn run(Documents { benchmarks, sizes }: &Documents) -> Result<()> {
    let mut ground = Ground::find(sizes)?;
    let mut failed = Vec::new();
    for &benchmark in benchmarks {
        let start = Instant::now();
        ground.begin();
        match step::timed(benchmark.name(), || benchmark.measure(&ground)) {
            Ok(section) => {
                let mut report = DailyReport::open(&sizes.name, &ground.tools.config)?;
                let made = format!("{}, commit {}", results::command(), results::commit());
                let text =
                    report.put(benchmark, &section, &format!("{made}, {:.0} s", start.elapsed().as_secs_f64()))?;
                println!("\n{text}\nwritten to {}\n", report.path().display());
            }
            Err(error) => {
                eprintln!("{} failed: {error:#}", benchmark.name());
                failed.push(benchmark.name());
            }
        }
    }
    if !failed.is_empty() {
        bail!("not everything could be measured: {}", failed.join(", "));
    }
    Ok(())
}
