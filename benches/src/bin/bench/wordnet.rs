//! 116,659 real embeddings that anyone can reproduce: the definitions of WordNet, embedded by the model all-MiniLM-L6-v2. They have 384
//! dimensions, or 1,152 or 1,536 by concatenating three or four ways of pooling.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use harness::{Vectors, apt, step};

use super::venv;

/// The directory of Debian's package wordnet-base.
const TEXTS: &str = "/usr/share/wordnet";
const SCRIPT: &str = include_str!("wordnet.py");

/// Rows and queries of `wordnet-384`, `wordnet-1152` or `wordnet-1536`. They are embedded at first use, which takes some minutes.
pub fn embeddings(name: &str) -> Result<(Vectors, Vectors)> {
    let dir = step::work_dir()?.join("bench");
    let [base, queries] = ["base", "query"].map(|part| dir.join(format!("{name}_{part}.npy")));
    if !base.is_file() {
        if !Path::new(TEXTS).join("data.noun").is_file() {
            apt::install(&["wordnet-base".to_owned()])?;
        }
        std::fs::create_dir_all(&dir)?;
        let script = dir.join("wordnet.py");
        std::fs::write(&script, SCRIPT)?;
        let mut embed = Command::new(venv::MODEL.python()?);
        embed.arg(&script).arg(dir.join("wordnet")).arg(TEXTS);
        step::command("embedding 117,659 definitions", "", &mut embed)?;
    }
    Ok((Vectors::read(&base)?, Vectors::read(&queries)?))
}
