//! Builds of hard data, by a builder and in the database: one report with the worst first.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::results::Results;
use crate::{build, install, setup, step};

pub const USAGE: &str = "\
usage: cargo xtask bench hard [FAMILY,...] [--rows N] [--queries N] [--seeds LIST]

Builds indexes of families of data on which graph builders go wrong (tests/src/hard), externally and in the database,
and searches both. FAMILY is a part of a family's name; --help shows all options.";

/// Measures, and writes a report.
pub fn run(words: &[String]) -> Result<()> {
    let config = setup::run(None)?;
    build::program()?;
    let [.., hard] = build::benches()?;
    install::install(&config, build::Profile::Release)?;
    let table = step::work_dir()?.join("hard.md");
    // What an earlier run has left is not of this one.
    let _ = std::fs::remove_file(&table);
    let mut command = Command::new(hard);
    command.args(["--contestants", "external,database", "--table"]).arg(&table).args(words);
    // What it says is the report as it grows.
    let status = command.status().context("cannot run the benchmark")?;
    ensure!(status.success(), "the benchmark failed: {status}");
    if !table.is_file() {
        return Ok(());
    }
    let mut results = Results::new("hard", &config)?;
    results.markdown(&std::fs::read_to_string(&table)?);
    results.write()?;
    println!("\nwritten to {}", results.path().display());
    Ok(())
}
