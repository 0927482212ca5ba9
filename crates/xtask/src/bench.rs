//! `cargo xtask bench`: builds and installs what takes part, and runs the program in `benches`.

use std::process::Command;

use anyhow::Result;

use crate::{build, install, setup, step};

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
    step::shown(&mut bench)
}
