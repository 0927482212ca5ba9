//! Python with the libraries of others, in a private environment.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::step;

const PACKAGES: [&str; 3] = ["numpy", "hnswlib==0.8.0", "faiss-cpu>=1.12"];

/// The interpreter, after making the environment the first time.
pub fn python() -> Result<PathBuf> {
    let dir = step::work_dir()?.join("bench-venv");
    let (python, complete) = (dir.join("bin/python"), dir.join(PACKAGES.join("+")));
    if !complete.is_file() {
        let hint = "It needs Python with venv, its headers and a C++ compiler (Debian: python3-venv python3-dev g++).";
        let mut make = Command::new("python3");
        step::command("making a Python environment", hint, make.args(["-m", "venv"]).arg(&dir))?;
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--disable-pip-version-check"]).args(PACKAGES);
        step::command("installing hnswlib and faiss from PyPI", hint, &mut install)?;
        std::fs::write(&complete, "").with_context(|| format!("cannot write {}", complete.display()))?;
    }
    Ok(python)
}
