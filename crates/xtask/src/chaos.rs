//! `cargo xtask chaos`: faults at random moments in builds of several databases (tests/src/chaos).

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{build, install, setup};

/// Builds everything and runs the program with its own options.
pub fn run(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--kubernetes") {
        // First, because it fails without Go, and everything else takes minutes.
        harness::control_plane()?;
    }
    let config = setup::run(None, false)?;
    let [program, chaos] = build::chaos()?;
    install::install(&config, build::Profile::Release)?;
    let mut command = Command::new(chaos);
    command.args(words).env("LANTERN_INDEX", program).env("PG_CONFIG", &config.path);
    let status = command.status().context("cannot run the program")?;
    if status.success() { Ok(()) } else { bail!("chaos: {status}") }
}
