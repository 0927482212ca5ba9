use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{apt, step};

/// Installs what only the tests need: a browser for the status page, and Prometheus' checker for the alert rules.
pub fn install() -> Result<()> {
    let browser = ["chromium", "chromium-driver"].map(str::to_owned);
    if !(apt::has_program("chromium") && apt::has_program("chromedriver")) {
        apt::install(&browser)?;
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
