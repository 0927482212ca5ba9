use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::once::build_once;
use crate::root;

/// The release of Helm.
const HELM: &str = "3.22.0";

/// The program `helm` in `target/helm`. If it is missing it is built, which needs Go and takes some minutes.
pub fn helm() -> Result<PathBuf> {
    let program = root().join("target/helm").join(format!("helm-{HELM}"));
    build_once(&program, |made| {
        println!("building Helm {HELM}; this takes some minutes, once");
        let folder = made.with_extension("bin");
        let status = Command::new("go")
            .args(["install", "-trimpath", "-ldflags", "-s -w", &format!("helm.sh/helm/v3/cmd/helm@v{HELM}")])
            .env("GOBIN", &folder)
            .env("CGO_ENABLED", "0")
            // Run outside of any Go module: a module's versions would take precedence.
            .current_dir(made.parent().unwrap_or(made))
            .status()
            .context("cannot run go: the tests with Kubernetes need Go 1.25 or newer (https://go.dev/dl)")?;
        ensure!(status.success(), "go install of helm failed");
        fs::rename(folder.join("helm"), made)?;
        Ok(fs::remove_dir(folder)?)
    })?;
    Ok(program)
}
