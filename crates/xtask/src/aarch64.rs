//! The kernels for aarch64, whole builds with them, and a PostgreSQL for it, tested on any machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build::Profile;
use crate::test::{self, Part, Summary};
use crate::unpacked::{self, Processor};
use crate::{apt, build, install, setup, step};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Emulates programs of the architecture.
pub const EMULATOR: &str = "qemu-aarch64-static";
/// Where the packages put the libraries of the other architecture.
const ROOT: &str = "/usr/aarch64-linux-gnu";

/// `lantern-index` without features that need a C++ compiler, and a test that starts it, for which cargo builds it.
const PROGRAM: [&str; 5] = ["-p", "lantern-index", "--no-default-features", "--test", "cpu_levels"];

/// Whether programs for the architecture are emulated here.
const EMULATED: bool = !cfg!(target_arch = "aarch64");

/// Cross-compiles the tests of the kernels and runs them.
pub fn kernels() -> Result<()> {
    if EMULATED {
        prepare()?;
    }
    cargo("test", &["-p", "lantern-index-distance"])
}

/// Tests the kernels, and builds with them at each level of the processor; then external builds of a native PostgreSQL with an emulated
/// builder. With `pg`, only such builds, of an emulated PostgreSQL of that release.
pub fn run(pg: Option<u32>) -> Result<Vec<Summary>> {
    if pg.is_none() {
        kernels()?;
        cargo("test", &PROGRAM)?;
    } else if EMULATED {
        prepare()?;
    } else {
        bail!("nothing is emulated here: `cargo xtask test --pg` tests on such a machine");
    }
    if !EMULATED {
        return Ok(Vec::new());
    }
    let native = setup::run(None, false)?;
    cargo("build", &PROGRAM)?;
    put_starter()?;
    let Some(major) = pg else {
        install::install(&native, Profile::Demo)?;
        return Ok(vec![test::on(&native, Part::Named("aarch64"))?]);
    };
    let config = unpacked::prepare(major, Processor::Aarch64, test::INSTEAD)?;
    let mut cargo = foreign_cargo(Some(&config));
    cargo.args(["build", "--profile", "demo", "--target", TARGET]).args(build::extension_arguments(major));
    let what = format!("the extension for PostgreSQL {major} on {TARGET}");
    let built = format!("{TARGET}/demo/liblantern_index.so");
    install::put_all(&config, &build::cargo_build(&what, "libclang", &mut cargo, &built)?)?;
    let runnable = unpacked::runnable(&config)?;
    Ok(vec![test::on(&runnable.config, Part::Named("aarch64"))?])
}

fn cargo(command: &str, arguments: &[&str]) -> Result<()> {
    let done = step::shown(foreign_cargo(None).arg(command).args(["--target", TARGET]).args(arguments));
    done.with_context(|| format!("cargo {command} for {TARGET} failed"))
}

/// A cargo that compiles for the architecture, and emulates what it runs.
fn foreign_cargo(config: Option<&harness::PgConfig>) -> Command {
    let mut cargo = build::cargo(config);
    if EMULATED {
        let emulator = emulator().join(" ");
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &emulator);
        // Tests start the program themselves.
        cargo.env("LANTERN_INDEX_EMULATOR", emulator);
        // libclang has its own headers only for this machine's architecture.
        cargo.env("BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu", format!("-isystem {ROOT}/include"));
    }
    cargo
}

fn emulator() -> [&'static str; 3] {
    [EMULATOR, "-L", ROOT]
}

/// Puts a script that emulates the program beside the native one, where the integration test finds it.
fn put_starter() -> Result<()> {
    let dir = step::target_dir()?;
    let program = dir.join(TARGET).join("debug/lantern-index");
    let starter: PathBuf = dir.join("debug/lantern-index-aarch64");
    let script = format!("#!/bin/sh\nexec {} '{}' \"$@\"\n", emulator().join(" "), program.display());
    fs::create_dir_all(dir.join("debug"))?;
    fs::write(&starter, script).with_context(|| format!("cannot write {}", starter.display()))?;
    Ok(fs::set_permissions(&starter, fs::Permissions::from_mode(0o755))?)
}

/// Installs the cross-compiler, the emulator and Rust's library for the architecture, where they are missing.
fn prepare() -> Result<()> {
    let tools = [(LINKER, &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"][..]), (EMULATOR, &["qemu-user-static"])];
    let missing = tools.iter().filter(|(program, _)| !apt::has_program(program)).flat_map(|(_, packages)| *packages);
    let missing: Vec<String> = missing.map(|&package| package.to_owned()).collect();
    if !missing.is_empty() {
        apt::install(&missing)?;
    }
    let dir = step::output(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    if !dir.is_ok_and(|dir| Path::new(dir.trim()).is_dir()) {
        let hint = format!("Without rustup, install Rust's standard library for {TARGET} in another way.");
        let mut rustup = Command::new("rustup");
        step::command(&format!("rustup target add {TARGET}"), &hint, rustup.args(["target", "add", TARGET]))?;
    }
    Ok(())
}
