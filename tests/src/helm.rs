use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;

/// The release of Helm.
const HELM: &str = "3.22.0";

/// The program helm. It is built, which takes some minutes and needs Go, unless it is in `target/helm`.
pub fn helm() -> Result<PathBuf> {
    let folder = root().join("target/helm");
    let program = folder.join(format!("helm-{HELM}"));
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&folder)?;
    println!("building Helm {HELM}; this takes some minutes, once");
    let status = Command::new("go")
        .args(["install", "-trimpath", "-ldflags", "-s -w", &format!("helm.sh/helm/v3/cmd/helm@v{HELM}")])
        .env("GOBIN", folder.join("new"))
        .env("CGO_ENABLED", "0")
        .current_dir(&folder)
        .status()
        .context("cannot run go: the tests with Kubernetes need Go 1.25 or newer (https://go.dev/dl)")?;
    ensure!(status.success(), "go install of helm failed");
    fs::rename(folder.join("new/helm"), &program)?;
    Ok(program)
}
