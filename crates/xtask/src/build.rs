use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use harness::PgConfig;

use crate::step;

mod place;

pub use place::Place;

/// The package of the PostgreSQL library.
pub const EXTENSION: &str = "lantern-index-extension";

/// The members of a plain build. Cargo unites features over the chosen members, so another choice would compile everything again.
pub const EVERYTHING: [&str; 3] = ["--workspace", "--exclude", EXTENSION];

/// The arguments for the programs that tests start. With a test among the targets, features are those of tests: nothing is compiled twice.
pub const PROGRAMS: [&str; 6] = {
    let [all, but, extension] = EVERYTHING;
    [all, but, extension, "--bins", "--test", "architecture"]
};

/// The cargo that runs us, in the workspace, for a PostgreSQL if one is given.
pub fn cargo(config: Option<&PgConfig>) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.current_dir(harness::root());
    // Remove the variables that cargo sets for this package: ring's build script reads them, so ring and all that depends on it would be
    // rebuilt after each `cargo build` by hand.
    let own = env::vars_os().map(|(name, _)| name).filter(|name| is_of_package(&name.to_string_lossy()));
    own.for_each(|name| {
        cargo.env_remove(name);
    });
    if let Some(config) = config {
        cargo.env("PGRX_PG_CONFIG_PATH", &config.path).env("PG_CONFIG", &config.path);
    }
    cargo
}

/// Whether cargo sets a variable for the package whose program it runs.
fn is_of_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// The arguments that choose the extension, for a PostgreSQL release.
pub fn extension_arguments(major: u32) -> [String; 5] {
    ["-p", EXTENSION, "--no-default-features", "--features", &format!("pg{major}")].map(str::to_owned)
}

/// How well a program is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As for users.
    Release,
    /// Nearly so, in a third of the time.
    Demo,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Demo => "demo",
        }
    }
}

/// Runs `cargo build`; returns the path of `built`, which is relative to the target directory. An error's hint says what it `needs`.
pub fn cargo_build(what: &str, needs: &str, cargo: &mut Command, built: &str) -> Result<PathBuf> {
    let hint = format!("It needs {needs}.");
    step::command(&format!("building {what}"), &hint, cargo)?;
    Ok(step::target_dir()?.join(built))
}

/// What compiling the library needs besides Rust.
pub fn needs(major: u32) -> String {
    format!("libclang and PostgreSQL's headers (Debian: libclang-dev, postgresql-server-dev-{major})")
}

/// Builds the PostgreSQL library, optimised; returns its path.
pub fn extension(config: &PgConfig, profile: Profile) -> Result<PathBuf> {
    let (name, mut cargo) = (profile.name(), cargo(Some(config)));
    cargo.args(["build", "--locked", "--profile", name]).args(extension_arguments(config.major));
    let what = format!("the extension for PostgreSQL {}", config.major);
    cargo_build(&what, &needs(config.major), &mut cargo, &format!("{name}/liblantern_index.so"))
}

/// Builds the `lantern-index` program, optimised; returns its path.
pub fn program() -> Result<PathBuf> {
    let arguments = ["build", "--locked", "--release", "-p", "lantern-index"];
    cargo_build("lantern-index", "a C++ compiler", cargo(None).args(arguments), "release/lantern-index")
}

/// Builds the `lantern-index` program for the demo, without unneeded parts; returns its path.
pub fn demo_program() -> Result<PathBuf> {
    let arguments = ["build", "--profile", "demo", "-p", "lantern-index", "--no-default-features"];
    cargo_build("lantern-index", "a C compiler", cargo(None).args(arguments), "demo/lantern-index")
}

/// Builds the programs `lantern-index` and `chaos` as in tests; returns their paths.
pub fn chaos() -> Result<[PathBuf; 2]> {
    let mut cargo = cargo(None);
    let dir = cargo_build("lantern-index and chaos", "a C++ compiler", cargo.arg("build").args(PROGRAMS), "debug")?;
    Ok(["lantern-index", "chaos"].map(|name| dir.join(name)))
}

/// Builds the programs of the benchmarks, optimised; returns the path of the main one.
pub fn benches() -> Result<PathBuf> {
    let arguments = ["build", "--release", "-p", "lantern-index-benches", "--bins"];
    cargo_build("the benchmarks", "a C++ compiler", cargo(None).args(arguments), "release/bench")
}
