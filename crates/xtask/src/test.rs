use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use harness::{PgConfig, pgvector_version};

use crate::{build, install, setup, test_tools};

/// The package of the integration tests.
const INTEGRATION: &str = "lantern-index-tests";

/// Set-up, checks and tests; or the part called `name`.
pub fn run(name: Option<&str>) -> Result<()> {
    match name {
        Some("fmt") => return format(),
        None => format()?,
        _ => {}
    }
    let config = setup::run(None)?;
    match name {
        Some("clippy") => return clippy(&config),
        None => clippy(&config)?,
        _ => {}
    }
    test_tools::install()?;
    let everything = ["--workspace", "--exclude", build::EXTENSION];
    let of_members = [&everything[..], &["--exclude", INTEGRATION]].concat();
    let counts = match name {
        Some("unit") => test(&config, &of_members, &[])? + test(&config, &["-p", INTEGRATION, "--lib"], &[])?,
        other => {
            install::install(&config)?;
            loud(&config, "build", &everything)?;
            match other {
                None => test(&config, &everything, &[])?,
                Some("integration") => test(&config, &["-p", INTEGRATION, "--tests"], &[])?,
                Some(file) if is_file(file) => test(&config, &["-p", INTEGRATION, "--test", file], &[])?,
                Some(part) => {
                    let counts = test(&config, &everything, &[part])?;
                    ensure!(counts.passed + counts.failed > 0, "no test's name contains {part:?}");
                    counts
                }
            }
        }
    };
    let pgvector = pgvector_version(&config).unwrap_or_default();
    println!("\nPostgreSQL {}, pgvector {pgvector}, {}", config.version, rustc()?);
    println!("{} passed, {} failed", counts.passed, counts.failed);
    ensure!(counts.failed == 0 && counts.complete, "some tests failed");
    Ok(())
}

/// Results summed over test programs.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    /// Cargo says that all went well; otherwise something may not even have been compiled.
    complete: bool,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            complete: self.complete && other.complete,
        }
    }
}

/// Runs `cargo test`, shows what it says, and adds up its summaries.
fn test(config: &PgConfig, arguments: &[&str], filter: &[&str]) -> Result<Counts> {
    let mut cargo = build::cargo(Some(config));
    cargo.args(["test", "--no-fail-fast"]).args(arguments).arg("--").args(filter).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot run cargo")?;
    let output = BufReader::new(child.stdout.take().context("cargo has no stdout")?);
    let mut counts = Counts { passed: 0, failed: 0, complete: true };
    for line in output.lines() {
        let line = line.context("cannot read what cargo says")?;
        println!("{line}");
        if let Some((passed, failed)) = summary(&line) {
            counts.passed += passed;
            counts.failed += failed;
        }
    }
    counts.complete = child.wait()?.success();
    if !counts.complete && counts.failed == 0 {
        bail!("cargo test did not come to an end; see above");
    }
    Ok(counts)
}

/// Passed and failed in `test result: ok. 3 passed; 0 failed; …`.
fn summary(line: &str) -> Option<(u64, u64)> {
    let mut parts = line.strip_prefix("test result: ")?.split_once(". ")?.1.split("; ");
    let mut count = |word: &str| parts.next()?.strip_suffix(word)?.trim().parse().ok();
    Some((count("passed")?, count("failed")?))
}

fn format() -> Result<()> {
    let status = build::cargo(None).args(["fmt", "--all", "--check"]).status().context("cannot run cargo fmt")?;
    ensure!(status.success(), "the code is not formatted; `cargo fmt --all` does it");
    println!("cargo fmt --check: fine");
    Ok(())
}

fn clippy(config: &PgConfig) -> Result<()> {
    let deny = ["--all-targets", "--", "-D", "warnings"];
    loud(config, "clippy", &[&["--workspace", "--exclude", build::EXTENSION][..], &deny].concat())?;
    let extension = build::extension_arguments(config);
    let extension: Vec<&str> = extension.iter().map(String::as_str).collect();
    loud(config, "clippy", &[&extension[..], &deny].concat())
}

/// Runs a cargo command whose output is wanted.
fn loud(config: &PgConfig, command: &str, arguments: &[&str]) -> Result<()> {
    let status = build::cargo(Some(config)).arg(command).args(arguments).status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo {command} {} failed", arguments.join(" "));
    Ok(())
}

fn is_file(name: &str) -> bool {
    let dir = harness::root().join("tests/tests");
    dir.join(format!("{name}.rs")).is_file() || dir.join(name).join("main.rs").is_file()
}

fn rustc() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.02s";
        assert_eq!(summary(line), Some((12, 3)));
        assert_eq!(summary("test result: ok. 0 passed; 0 failed; 0 ignored"), Some((0, 0)));
        assert_eq!(summary("test main_job ... ok"), None);
    }
}
