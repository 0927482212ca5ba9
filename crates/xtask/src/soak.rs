use anyhow::{Context, Result, bail};

use crate::build;

/// Runs very many builds of random shapes and endings against one daemon, and checks what they leave behind.
pub fn run() -> Result<()> {
    let program = build::program()?;
    let mut test = build::cargo(None);
    test.args(["test", "-q", "-p", "lantern-index-server", "--test", "soak", "--", "--ignored", "--nocapture"]);
    let status = test.env("LANTERN_INDEX_BINARY", program).status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("something is left of the builds") }
}
