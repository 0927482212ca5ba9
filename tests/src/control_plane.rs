use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::once::build_once;
use crate::root;

/// The release of Kubernetes that `tests/k8s/control-plane/go.mod` requires, such as `1.35.4`.
pub fn kubernetes_release() -> Result<String> {
    let text = fs::read_to_string(root().join("tests/k8s/control-plane/go.mod")).context("cannot read go.mod")?;
    let release = text.lines().find_map(|line| line.strip_prefix("require k8s.io/kubernetes v"));
    Ok(release.context("go.mod does not require k8s.io/kubernetes")?.to_owned())
}

/// The program of `tests/k8s/control-plane`: etcd, the parts of Kubernetes, and kubectl. If its sources have changed it is built, which
/// needs Go and takes some minutes; otherwise the one in `target/control-plane` is used.
pub fn control_plane() -> Result<PathBuf> {
    let sources = root().join("tests/k8s/control-plane");
    let mut hasher = DefaultHasher::new();
    for file in ["go.mod", "go.sum", "main.go"] {
        fs::read(sources.join(file)).with_context(|| format!("cannot read {file}"))?.hash(&mut hasher);
    }
    let program = root().join("target/control-plane").join(format!("control-plane-{:016x}", hasher.finish()));
    let kubernetes = kubernetes_release()?;
    build_once(&program, |made| {
        println!("building Kubernetes {kubernetes} from tests/k8s/control-plane; this takes some minutes, once");
        let version = format!("-X k8s.io/component-base/version.gitVersion=v{kubernetes}");
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

#[cfg(test)]
mod tests {
    use super::kubernetes_release;

    #[test]
    fn the_release_of_kubernetes_is_read_from_go_mod() {
        let release = kubernetes_release().unwrap();
        let numbers: Result<Vec<u32>, _> = release.split('.').map(str::parse).collect();
        assert!(numbers.is_ok_and(|numbers| numbers.len() == 3 && numbers[0] == 1), "{release}");
    }
}
