use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use harness::PgConfig;

use crate::build;

/// Results summed over test programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    /// Cargo says that all went well; otherwise something may not even have been compiled.
    pub complete: bool,
}

impl Counts {
    /// Nothing was tested yet.
    pub const NONE: Self = Self { passed: 0, failed: 0, complete: true };
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
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
pub fn test(config: &PgConfig, arguments: &[impl AsRef<OsStr>], filter: &[&str]) -> Result<Counts> {
    let mut cargo = build::cargo(Some(config));
    cargo.args(["test", "--no-fail-fast"]).args(arguments).arg("--").args(filter).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot run cargo")?;
    let output = BufReader::new(child.stdout.take().context("cargo has no stdout")?);
    let mut counts = Counts::NONE;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_and_failed_are_read_from_a_summary() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.02s";
        assert_eq!(summary(line), Some((12, 3)));
        assert_eq!(summary("test result: ok. 0 passed; 0 failed; 0 ignored"), Some((0, 0)));
        assert_eq!(summary("test main_job ... ok"), None);
    }
}
