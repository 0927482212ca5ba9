use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, anyhow, bail, ensure};
use harness::{MINIMUM_PGVECTOR, PgConfig, Scratch, cores, default_version, pgvector_version};

use crate::other_apt::{Kind, OtherApt};
use crate::system::System;
use crate::{apt, install, step};

/// Newer Debian releases whose source packages are tried, in this order.
const SUITES: [&str; 3] = ["trixie", "forky", "sid"];

/// Whether a recent enough pgvector is installed.
pub fn installed(config: &PgConfig) -> bool {
    pgvector_version(config).is_some_and(|version| is_new_enough(&version))
}

/// Fails if there is one that the set-up would have to replace: databases in use may depend on it.
pub fn refuse_older(config: &PgConfig) -> Result<()> {
    let Some(version) = pgvector_version(config).filter(|version| !is_new_enough(version)) else { return Ok(()) };
    let (major, minor) = MINIMUM_PGVECTOR;
    bail!(
        "PostgreSQL {} has pgvector {version} ({}), and {major}.{minor} or newer is needed. `cargo xtask setup --replace-pgvector` \
         replaces it for all clusters of this PostgreSQL, whose databases then need ALTER EXTENSION vector UPDATE. \
         PG_CONFIG names another PostgreSQL.",
        config.version,
        config.pkglibdir.join("vector.so").display()
    )
}

/// Fails unless the distribution's package is recent enough.
pub fn can_be_installed(major: u32) -> Result<()> {
    let package = format!("postgresql-{major}-pgvector");
    let version = apt::candidate(&package);
    let (minimum, minor) = MINIMUM_PGVECTOR;
    ensure!(
        version.as_ref().is_some_and(|version| is_new_enough(version)),
        "pgvector {minimum}.{minor} or newer is needed, and the package {package} is {}",
        version.map_or("not to be had".to_owned(), |version| format!("of version {version}"))
    );
    Ok(())
}

/// Installs pgvector for a PostgreSQL: the distribution's package if it is new enough, else from Debian's source.
pub fn install(config: &PgConfig) -> Result<()> {
    let package = format!("postgresql-{}-pgvector", config.major);
    let is_debians = config.bindir.starts_with("/usr/lib/postgresql");
    if is_debians && can_be_installed(config.major).is_ok() {
        apt::install(&[package])?;
    } else {
        let system = System::own();
        ensure!(
            system.is_debian(),
            "{} has no recent pgvector, and set-up cannot get one here\n{}",
            config.path.display(),
            system.commands()
        );
        let dir = step::work_dir()?.join(format!("pgvector-pg{}", config.major));
        let source = fetch_first(&dir, |_| true).with_context(|| {
            let (major, minor) = MINIMUM_PGVECTOR;
            format!("cannot get pgvector; install {major}.{minor} or newer for {} yourself", config.path.display())
        })?;
        compile(config, &source)?;
    }
    let version = pgvector_version(config).unwrap_or_else(|| "none".to_owned());
    ensure!(is_new_enough(&version), "pgvector was installed, but {} has {version}", config.pkglibdir.display());
    Ok(())
}

/// The directory in `PGVECTOR_SOURCE`.
pub fn own_source() -> Option<PathBuf> {
    env::var_os("PGVECTOR_SOURCE").map(PathBuf::from)
}

/// pgvector's source of exactly this version: the directory in `PGVECTOR_SOURCE`, or one fetched from Debian, earlier or now.
pub fn source(version: &str) -> Result<PathBuf> {
    if let Some(path) = own_source() {
        let control = fs::read_to_string(path.join("vector.control"))
            .with_context(|| format!("PGVECTOR_SOURCE: {} is not pgvector's source", path.display()))?;
        ensure!(
            control.contains(&format!("'{version}'")),
            "PGVECTOR_SOURCE: {} is not of version {version}, which is the one installed",
            path.display()
        );
        return Ok(path);
    }
    let dir = step::work_dir()?.join(format!("pgvector-{version}"));
    let path = dir.join("files").join(format!("pgvector-{version}"));
    if path.join("Makefile").is_file() {
        return Ok(path);
    }
    fetch_first(&dir, |found| found == path)
        .with_context(|| format!("cannot get the source of pgvector {version}; PGVECTOR_SOURCE may name its directory"))
}

/// Fetches the sources of the oldest and the newest pgvector of Debian that are tested, unless they are here, for `tests/tests/type_info.rs`.
/// If Debian no longer has a source, the test does without it.
pub fn fetch_sources() -> Result<()> {
    for suite in &SUITES[..2] {
        let dir = step::work_dir()?.join(format!("pgvector-{suite}"));
        // What a broken download has left is no source.
        let is_whole = |file: fs::DirEntry| file.path().join("src/hnsw.h").is_file();
        let is_here = fs::read_dir(dir.join("files")).is_ok_and(|files| files.flatten().any(is_whole));
        if !is_here && let Err(error) = fetch_from(suite, &dir, |_| true) {
            eprintln!("no source of Debian {suite}'s pgvector: {error:#}");
        }
    }
    Ok(())
}

/// The first source package of [`SUITES`] that `will_do` accepts.
fn fetch_first(dir: &Path, will_do: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    let mut result = Err(anyhow!("no release of Debian has it"));
    for suite in SUITES {
        result = fetch_from(suite, dir, &will_do);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// A Debian release's source package, if `will_do` accepts it.
fn fetch_from(suite: &str, dir: &Path, will_do: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    ensure!(apt::has_program("dpkg-source"), "Debian's source package cannot be used: there is no dpkg-source");
    OtherApt::with(suite, Kind::Sources, dir, |apt| {
        apt.get(&["source", "pgvector"])?;
        let source = fs::read_dir(apt.files())?.flatten().map(|entry| entry.path()).find(|path| path.is_dir());
        let source = source.context("apt-get source left no directory")?;
        ensure!(will_do(&source), "Debian {suite} has {}", source.display());
        Ok(source)
    })
}

/// Compiles and installs pgvector, in a copy of its source, so that object files of another release of PostgreSQL are not used.
pub fn compile(config: &PgConfig, source: &Path) -> Result<()> {
    let scratch = Scratch::new("pgvector", 0o755)?;
    step::output(Command::new("cp").args(["-R", "--no-target-directory"]).arg(source).arg(scratch.path()))?;
    let source = scratch.path();
    let control =
        fs::read_to_string(source.join("vector.control")).context("the source package has no vector.control")?;
    let version = default_version(&control).unwrap_or("?");
    if !is_new_enough(version) {
        bail!("the source package is of version {version}");
    }
    let pg_config = format!("PG_CONFIG={}", config.path.display());
    let cflags = format!("CFLAGS={}", without_warnings(&config.cflags()?));
    // OPTFLAGS: no instructions specific to this machine's processor. with_llvm: no second compilation for the JIT.
    let settings = [pg_config.as_str(), "OPTFLAGS=", "with_llvm=no", &cflags];
    let jobs = format!("--jobs={}", cores());
    let mut make = Command::new("make");
    make.arg(jobs).args(settings).current_dir(source);
    step::command(&format!("compiling pgvector {version}"), "Are gcc and PostgreSQL's headers complete?", &mut make)?;
    let purpose = format!("installing pgvector into {}", config.pkglibdir.display());
    let mut make = install::changing(&config.pkglibdir, &purpose)("make")?;
    make.arg("install").args(settings).current_dir(source);
    step::command(&format!("installing pgvector {version}"), "", &mut make)
}

/// The compiler's flags but those of warnings, of which a PostgreSQL from a newer system has some that this machine's compiler does not know.
fn without_warnings(flags: &str) -> String {
    let flags = flags.split_whitespace().filter(|flag| !flag.starts_with("-W"));
    flags.collect::<Vec<_>>().join(" ")
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= MINIMUM_PGVECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pgvector_that_is_too_old_is_an_error() {
        let dir = Scratch::new("pgvector", 0o755).unwrap();
        let place = |name: &str| dir.path().join(name);
        let config = PgConfig {
            path: "/x/bin/pg_config".into(),
            major: 15,
            version: "15.20".to_owned(),
            bindir: "/x/bin".into(),
            pkglibdir: place("lib"),
            sharedir: place("share"),
            include: "/x/include".into(),
        };
        let with = |version: &str| {
            fs::write(place("share/extension/vector.control"), format!("default_version = '{version}'\n")).unwrap();
            refuse_older(&config).map_err(|error| error.to_string())
        };
        assert!(refuse_older(&config).is_ok(), "there is none");
        for folder in ["lib", "share/extension"] {
            fs::create_dir_all(place(folder)).unwrap();
        }
        fs::write(place("lib/vector.so"), "").unwrap();
        assert!(with("0.8.0").is_ok());
        let error = with("0.7.4").unwrap_err();
        assert!(
            error.starts_with("PostgreSQL 15.20 has pgvector 0.7.4 (") && error.contains("--replace-pgvector"),
            "{error}"
        );
    }

    #[test]
    fn flags_of_warnings_are_left_out() {
        assert_eq!(without_warnings("-Wall -O2 -Werror=vla -fwrapv"), "-O2 -fwrapv");
    }

    #[test]
    fn versions_from_0_8_on_are_new_enough() {
        for version in ["0.8.0", "0.8.0-1", "0.10.1", "1.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["0.7.4", "0.7.4-lanterncloud", "none", ""] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
