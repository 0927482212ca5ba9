//! The checksums of all files of a release for this machine's architecture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::package::architecture;
use crate::step::output;

/// Removes the files of an earlier release from `out`.
pub fn remove_files(out: &Path) -> Result<()> {
    let architecture = architecture()?;
    for name in names(out, &architecture)?.into_iter().chain([file(&architecture)]) {
        let _ = fs::remove_file(out.join(name));
    }
    Ok(())
}

/// Writes the SHA-256 of each file of the release that `out` has now, as `sha256sum --check` reads it.
pub fn write(out: &Path) -> Result<PathBuf> {
    let architecture = architecture()?;
    let sums = output(Command::new("sha256sum").args(names(out, &architecture)?).current_dir(out))?;
    let path = out.join(file(&architecture));
    fs::write(&path, sums).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(path)
}

/// Checks the files that are named in `sums`.
pub fn check(sums: &Path) -> Result<()> {
    let folder = sums.parent().context("no folder")?;
    output(Command::new("sha256sum").args(["--check", "--strict"]).arg(sums).current_dir(folder)).map(drop)
}

/// Releases for several architectures lie in one folder when they are published.
fn file(architecture: &str) -> String {
    format!("SHA256SUMS-{architecture}")
}

/// Packages, archives and bills of materials, in alphabetical order.
fn names(out: &Path, architecture: &str) -> Result<Vec<String>> {
    let ends = ["deb", "tar", "cdx.json"].map(|end| format!("_{architecture}.{end}"));
    let entries = fs::read_dir(out).with_context(|| format!("cannot read {}", out.display()))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| ends.iter().any(|end| name.ends_with(end)));
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use harness::Scratch;

    use super::*;

    #[test]
    fn all_files_of_a_release_are_summed() {
        let scratch = Scratch::new("sums", 0o700).unwrap();
        let (out, own) = (scratch.path(), architecture().unwrap());
        let package = format!("lantern-index_0.1.0_{own}.deb");
        let put = |name: &str, text: &str| fs::write(out.join(name), text).unwrap();
        put(&package, "package");
        put("other.log", "");
        let packages = write(out).unwrap();
        assert_eq!(fs::read_to_string(&packages).unwrap().lines().count(), 1);
        // The image comes later.
        put(&format!("lantern-index-extension_0.1.0_pg18_{own}.tar"), "image");
        put(&format!("lantern-index_0.1.0_{own}.cdx.json"), "{}");
        let all = write(out).unwrap();
        assert_eq!((all.clone(), fs::read_to_string(&all).unwrap().lines().count()), (packages, 3));
        check(&all).unwrap();
        put(&package, "another");
        assert!(check(&all).is_err());
        remove_files(out).unwrap();
        let left: Vec<_> = fs::read_dir(out).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["other.log"]);
    }
}
