//! `cargo xtask chaos`: faults at random moments in builds of several databases (tests/src/chaos).

use std::process::Command;

use anyhow::Result;

use crate::{build, install, setup, step};

/// Builds everything and runs the program with its own options.
pub fn run(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--kubernetes") {
        // First, because it fails without Go, and everything else takes minutes.
        harness::control_plane()?;
    }
    let config = setup::run(None, false)?;
    let [program, chaos] = build::chaos()?;
    install::install(&config, build::Profile::Release)?;
    step::shown(Command::new(chaos).args(words).env("LANTERN_INDEX", program).env("PG_CONFIG", &config.path))
}
