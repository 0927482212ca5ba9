use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use harness::{MINIMUM_PGVECTOR, PgConfig, pgvector_version};

use crate::other_apt::{Kind, OtherApt};
use crate::{apt, build, step};

/// Newer Debian releases whose source package will do, in this order.
const SUITES: [&str; 2] = ["trixie", "sid"];

/// Whether a pgvector that is new enough is there.
pub fn installed(config: &PgConfig) -> bool {
    pgvector_version(config).is_some_and(|version| is_new_enough(&version))
}

/// Installs pgvector for a PostgreSQL: the distribution's package if it is new enough, else from Debian's source.
pub fn install(config: &PgConfig) -> Result<()> {
    let package = format!("postgresql-{}-pgvector", config.major);
    let is_debians = config.bindir.starts_with("/usr/lib/postgresql");
    if is_debians && apt::candidate(&package).is_some_and(|version| is_new_enough(&version)) {
        apt::install(&[package])?;
    } else {
        let source = fetch(config).with_context(|| {
            let (major, minor) = MINIMUM_PGVECTOR;
            format!("cannot get pgvector; install {major}.{minor} or newer for {} yourself", config.path.display())
        })?;
        compile(config, &source)?;
    }
    let version = pgvector_version(config).unwrap_or_else(|| "none".to_owned());
    ensure!(is_new_enough(&version), "pgvector was installed, but {} has {version}", config.pkglibdir.display());
    Ok(())
}

/// Gets Debian's source package of a newer release.
fn fetch(config: &PgConfig) -> Result<PathBuf> {
    ensure!(apt::has_program("dpkg-source"), "Debian's source package cannot be used: there is no dpkg-source");
    let dir = step::work_dir()?.join(format!("pgvector-pg{}", config.major));
    let from = |suite| {
        OtherApt::with(suite, Kind::Sources, &dir, |apt| {
            apt.get(&["source", "pgvector"])?;
            let source = fs::read_dir(apt.files())?.flatten().map(|entry| entry.path()).find(|path| path.is_dir());
            source.context("apt-get source left no directory")
        })
    };
    let [first, second] = SUITES;
    from(first).or_else(|_| from(second))
}

fn compile(config: &PgConfig, source: &Path) -> Result<()> {
    let control =
        fs::read_to_string(source.join("vector.control")).context("the source package has no vector.control")?;
    let version = control.lines().find_map(|line| line.strip_prefix("default_version = '")).unwrap_or("?");
    let version = version.trim_end_matches('\'');
    if !is_new_enough(version) {
        bail!("the source package is of version {version}");
    }
    // OPTFLAGS: nothing that only this machine's processor knows. with_llvm: no second compilation for the JIT.
    let pg_config = format!("PG_CONFIG={}", config.path.display());
    let settings = [pg_config.as_str(), "OPTFLAGS=", "with_llvm=no"];
    let jobs = format!("--jobs={}", build::cores());
    let mut make = Command::new("make");
    make.arg(jobs).args(settings).current_dir(source);
    step::command(&format!("compiling pgvector {version}"), "Are gcc and PostgreSQL's headers complete?", &mut make)?;
    let mut make = apt::as_root("make", &format!("installing pgvector into {}", config.pkglibdir.display()))?;
    make.arg("install").args(settings).current_dir(source);
    step::command(&format!("installing pgvector {version}"), "", &mut make)
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= MINIMUM_PGVECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for version in ["0.8.0", "0.8.0-1", "0.10.1", "1.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["0.7.4", "0.7.4-lanterncloud", "none", ""] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
