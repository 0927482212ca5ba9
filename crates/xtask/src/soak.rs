use anyhow::{Context, Result};

use crate::{build, step};

/// Runs many random builds, some of which fail, against one daemon, and checks what they leave behind.
pub fn run() -> Result<()> {
    let program = build::program()?;
    let mut test = build::cargo(None);
    test.args(["test", "-q", "-p", "lantern-index-server", "--test", "soak", "--", "--ignored", "--nocapture"]);
    step::shown(test.env("LANTERN_INDEX_BINARY", program)).context("something is left of the builds")
}
