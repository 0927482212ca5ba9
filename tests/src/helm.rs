use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::once::build_once;
use crate::root;

/// The release of Helm.
const HELM: &str = "3.22.0";

/// The program helm. It is built, which takes some minutes and needs Go, unless it is in `target/helm`.
pub fn helm() -> Result<PathBuf> {
    let program = root().join("target/helm").join(format!("helm-{HELM}"));
    build_once(&program, |made| {
        println!("building Helm {HELM}; this takes some minutes, once");
        let folder = made.with_extension("bin");
        let status = Command::new("go")
            .args(["install", "-trimpath", "-ldflags", "-s -w", &format!("helm.sh/helm/v3/cmd/helm@v{HELM}")])
            .env("GOBIN", &folder)
            .env("CGO_ENABLED", "0")
            // Outside of any Go module, whose versions would take precedence.
            .current_dir(made.parent().unwrap_or(made))
            .status()
            .context("cannot run go: the tests with Kubernetes need Go 1.25 or newer (https://go.dev/dl)")?;
        ensure!(status.success(), "go install of helm failed");
        fs::rename(folder.join("helm"), made)?;
        Ok(fs::remove_dir(folder)?)
    })?;
    Ok(program)
}
