use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::once::build_once;
use crate::root;

/// The release of Kubernetes in `tests/k8s/control-plane/go.mod`.
const KUBERNETES: &str = "1.35.4";

/// The program of `tests/k8s/control-plane`: etcd, the parts of Kubernetes, and kubectl. If its sources have changed it is built, which
/// needs Go and takes some minutes; otherwise the one in `target/control-plane` is used.
pub fn control_plane() -> Result<PathBuf> {
    let sources = root().join("tests/k8s/control-plane");
    let mut hasher = DefaultHasher::new();
    for file in ["go.mod", "go.sum", "main.go"] {
        fs::read(sources.join(file)).with_context(|| format!("cannot read {file}"))?.hash(&mut hasher);
    }
    let program = root().join("target/control-plane").join(format!("control-plane-{:016x}", hasher.finish()));
    build_once(&program, |made| {
        println!("building Kubernetes {KUBERNETES} from tests/k8s/control-plane; this takes some minutes, once");
        let version = format!("-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}");
        let flags = format!("-s -w {version}");
        let status = Command::new("go")
            .args(["build", "-buildvcs=false", "-mod=readonly", "-trimpath", "-ldflags", &flags, "-o"])
            .arg(made)
            .arg(".")
            .env("CGO_ENABLED", "0")
            .current_dir(&sources)
            .status()
            .context("cannot run go: the tests with Kubernetes need Go 1.25 or newer (https://go.dev/dl)")?;
        ensure!(status.success(), "go build failed in {}", sources.display());
        Ok(())
    })?;
    Ok(program)
}
