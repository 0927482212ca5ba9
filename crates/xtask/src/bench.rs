//! `cargo xtask bench`: builds and installs the contestants, and runs the program in `benches`.

use std::process::Command;

use anyhow::Result;

use crate::{build, install, setup, step};

/// Runs the benchmarks with their own options.
pub fn run(words: &[String]) -> Result<()> {
    let help = words.iter().any(|word| word == "--help" || word == "-h");
    let config = (!help).then(|| setup::run(None, false)).transpose()?;
    config.as_ref().map_or(Ok(()), install::check_rights)?;
    let mut bench = Command::new(build::benches()?);
    bench.args(words);
    if let Some(config) = config {
        build::program()?;
        install::install(&config, build::Profile::Release)?;
        bench.env("PG_CONFIG", &config.path);
    }
    step::shown(&mut bench)
}
