//! The kernels for aarch64, tested on any machine.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{apt, build, step};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";
/// Where the packages put the libraries of the other architecture.
const ROOT: &str = "/usr/aarch64-linux-gnu";

/// Cross-compiles the crate with the kernels and runs its tests, emulated unless this is such a machine.
pub fn run() -> Result<()> {
    let mut cargo = build::cargo(None);
    cargo.args(["test", "-p", "lantern-index-distance", "--target", TARGET]);
    if !cfg!(target_arch = "aarch64") {
        prepare()?;
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {ROOT}"));
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "the tests for {TARGET} failed");
    Ok(())
}

/// Installs the cross-compiler, the emulator and Rust's library for the architecture, where they are missing.
fn prepare() -> Result<()> {
    let tools = [(LINKER, &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"][..]), (EMULATOR, &["qemu-user-static"])];
    let missing = tools.iter().filter(|(program, _)| !apt::has_program(program)).flat_map(|(_, packages)| *packages);
    let missing: Vec<String> = missing.map(|&package| package.to_owned()).collect();
    if !missing.is_empty() {
        apt::install(&missing)?;
    }
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    let dir = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if !std::path::Path::new(&dir).is_dir() {
        let hint = format!("Without rustup, install Rust's standard library for {TARGET} in another way.");
        let mut rustup = Command::new("rustup");
        step::command(&format!("rustup target add {TARGET}"), &hint, rustup.args(["target", "add", TARGET]))?;
    }
    Ok(())
}
