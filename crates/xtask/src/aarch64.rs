//! The kernels for aarch64, and whole builds with them, tested on any machine.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{apt, build, step};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";
/// Where the packages put the libraries of the other architecture.
const ROOT: &str = "/usr/aarch64-linux-gnu";

/// The crate with the kernels; the program, which builds indexes at each level of the processor, without what needs a C++ compiler.
const TESTS: [&[&str]; 2] =
    [&["-p", "lantern-index-distance"], &["-p", "lantern-index", "--no-default-features", "--test", "cpu_levels"]];

/// Cross-compiles these tests and runs them, emulated unless this is such a machine.
pub fn run() -> Result<()> {
    if !cfg!(target_arch = "aarch64") {
        prepare()?;
    }
    for tests in TESTS {
        let mut cargo = build::cargo(None);
        cargo.args(["test", "--target", TARGET]).args(tests);
        if !cfg!(target_arch = "aarch64") {
            let emulator = format!("{EMULATOR} -L {ROOT}");
            cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
            cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &emulator);
            // Tests start the program themselves.
            cargo.env("LANTERN_INDEX_EMULATOR", emulator);
        }
        let status = cargo.status().context("cannot run cargo")?;
        ensure!(status.success(), "the tests for {TARGET} failed");
    }
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
