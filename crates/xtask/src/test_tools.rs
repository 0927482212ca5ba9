use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::system::System;
use crate::{apt, step};

/// Programs that only the tests need, and Debian's packages of them: a browser for the status page, and `ip` to take a network down.
const TOOLS: [(&str, &str); 3] = [("chromium", "chromium"), ("chromedriver", "chromium-driver"), ("ip", "iproute2")];

/// Installs these, and Prometheus' checker for the alert rules.
pub fn install() -> Result<()> {
    let packages = missing(System::own().is_debian(), apt::has_program)?;
    if !packages.is_empty() {
        apt::install(&packages)?;
    }
    let place = step::target_dir()?.join("tools");
    if apt::has_program("promtool") || place.join("promtool").is_file() {
        return Ok(());
    }
    // Only the one program: the package, installed, would start a Prometheus on this machine.
    let dir = step::work_dir()?.join("prometheus");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    ensure!(apt::has_program("apt-get"), "promtool is missing and this is no Debian; install Prometheus' promtool");
    let hint = "Without a network, put Prometheus' promtool into the PATH in another way and try again.";
    step::command(
        "fetching promtool",
        hint,
        Command::new("apt-get").args(["download", "prometheus"]).current_dir(&dir),
    )?;
    let package = fs::read_dir(&dir)?.flatten().map(|entry| entry.path());
    let package = package.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package.context("apt-get download left no package")?;
    let mut unpack = Command::new("dpkg-deb");
    step::command("unpacking promtool", hint, unpack.arg("--extract").arg(&package).arg(&dir))?;
    fs::create_dir_all(&place)?;
    // Renamed, so that a copy that is interrupted is not taken for the program.
    let copy = place.join("promtool.new");
    fs::copy(dir.join("usr/bin/promtool"), &copy).context("the package has no promtool")?;
    fs::rename(copy, place.join("promtool")).context("cannot rename promtool")?;
    fs::remove_dir_all(&dir).context("cannot delete the unpacked package")
}

/// The packages of missing programs. Other systems than Debian have other packages of a browser.
fn missing(is_debian: bool, has_program: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let (programs, packages): (Vec<_>, Vec<_>) = TOOLS.into_iter().filter(|(program, _)| !has_program(program)).unzip();
    ensure!(
        is_debian || programs.is_empty(),
        "the tests need {} in the PATH, which `cargo xtask test` installs on Debian only",
        programs.join(" and ")
    );
    Ok(packages.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn other_systems_are_told_which_programs_are_missing() {
        let has = |program: &str| program == "ip";
        assert_eq!(missing(true, has).unwrap(), ["chromium", "chromium-driver"]);
        assert_eq!(missing(true, |_| false).unwrap().last().unwrap(), "iproute2");
        let error = missing(false, has).unwrap_err().to_string();
        assert!(error.starts_with("the tests need chromium and chromedriver in the PATH"), "{error}");
        assert!(missing(false, |_| true).unwrap().is_empty());
    }
}
