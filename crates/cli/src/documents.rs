//! Manual pages and completions for packages, derived from the definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use crate::config;
use crate::failure::Failure;
use crate::print;

/// Writes `lantern-index.1` and a page for each command.
pub fn man(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    clap_mangen::generate_to(config::command(), dir)
        .with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
    Ok(())
}

/// Prints the completions.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut command = config::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print(text)
}
