//! `cargo xtask bench`: builds and installs what takes part, and runs the program in `benches`.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{build, install, setup};

/// Runs the benchmarks with their own options.
pub fn run(words: &[String]) -> Result<()> {
    let mut bench = Command::new(build::benches()?);
    bench.args(words);
    if !words.iter().any(|word| word == "--help" || word == "-h") {
        let config = setup::run(None, false)?;
        build::program()?;
        install::install(&config, build::Profile::Release)?;
        bench.env("PG_CONFIG", &config.path);
    }
    let status = bench.status().context("cannot run the benchmarks")?;
    if status.success() { Ok(()) } else { bail!("bench: {status}") }
}
