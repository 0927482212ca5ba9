//! A PostgreSQL of another Debian release, unpacked into a folder with all libraries that it needs: no chroot, no container and no
//! root rights. And copies of it, or of this machine's, with another pgvector.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::{PgConfig, Scratch};

use crate::other_apt::{Kind, OtherApt};
use crate::{aarch64, pgvector, step};

/// PostgreSQL releases, and Debian releases that have them with a recent enough pgvector. Their libraries must be newer than this
/// machine's, with which the extension is linked.
const RELEASES: [(u32, &str); 2] = [(17, "trixie"), (18, "forky")];

/// The releases that [`prepare`] can get.
pub fn majors() -> impl Iterator<Item = u32> {
    RELEASES.iter().map(|(major, _)| *major)
}

/// A script in place of a program, which starts it with its own release's loader and libraries, wherever the folder is.
const STARTER: &str = r#"#!/bin/sh
own=$(readlink -f "$0")
libraries=${own%/postgresql/*}/MULTIARCH
exec EMULATOR"$libraries/LOADER" --library-path "$libraries" --argv0 "$own" "$own.elf" "$@"
"#;

/// The processor that a PostgreSQL is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// This machine's.
    Own,
    /// Emulated.
    Aarch64,
}

/// A PostgreSQL in a temporary folder, for servers to run from: the account they run under may not be able to read `target/`.
pub struct Runnable {
    /// Where it is.
    pub config: PgConfig,
    _scratch: Scratch,
}

/// PostgreSQL `major`, with headers and pgvector: unpacked in `target/xtask` earlier, or now. An error says what to do `instead`.
pub fn prepare(major: u32, processor: Processor, instead: &str) -> Result<PgConfig> {
    let suffix = if processor == Processor::Own { "" } else { "-aarch64" };
    let root = step::work_dir()?.join(format!("postgresql-{major}{suffix}"));
    // Increase the number when the steps below change.
    let complete = root.join("complete-2");
    if !complete.is_file() {
        let (_, suite) = RELEASES.iter().find(|(found, _)| *found == major).with_context(|| {
            format!("PostgreSQL {major} is not the one found here, and not one of those that are fetched for tests")
        })?;
        fetch(major, suite, processor, &root).with_context(|| format!("cannot get PostgreSQL {major}; {instead}"))?;
        fs::write(complete, "")?;
    }
    let config = PgConfig::read(&root.join(format!("usr/lib/postgresql/{major}/bin/pg_config")))?;
    config.check()?;
    ensure!(config.has_headers(), "{} lacks {}/postgres.h", root.display(), config.include.display());
    Ok(config)
}

/// A copy of `config`'s PostgreSQL with its headers, in `target/xtask`, with `version` of pgvector compiled from source. It is kept, unless
/// the source is the user's own, which may change.
pub fn with_pgvector(config: &PgConfig, version: &str) -> Result<PgConfig> {
    let root = step::work_dir()?.join(format!("postgresql-{}-pgvector-{version}", config.major));
    let complete = root.join("complete");
    if !complete.is_file() || pgvector::own_source().is_some() {
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| format!("cannot delete {}", root.display()))?;
        }
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        let copied = copy(config, &["include/postgresql"], &root)?;
        pgvector::compile(&copied, &pgvector::source(version)?)?;
        fs::write(complete, "")?;
    }
    PgConfig::read(&root.join(config.path.strip_prefix(above(config)?)?))
}

/// Whether a PostgreSQL is one of [`prepare`] or [`with_pgvector`]: servers run from a [`runnable`] copy of it.
pub fn is_ours(config: &PgConfig) -> Result<bool> {
    Ok(config.path.starts_with(step::work_dir()?))
}

/// A copy of a PostgreSQL of [`prepare`] or [`with_pgvector`], without the headers.
pub fn runnable(config: &PgConfig) -> Result<Runnable> {
    let scratch = Scratch::new("postgresql", 0o755)?;
    Ok(Runnable { config: copy(config, &[], scratch.path())?, _scratch: scratch })
}

/// Copies a PostgreSQL, with its own libraries if it is of another release of Debian, and with more of `usr`.
fn copy(config: &PgConfig, more: &[&str], to: &Path) -> Result<PgConfig> {
    let root = above(config)?;
    let mut parts = vec!["lib/postgresql".to_owned(), "share/postgresql".to_owned()];
    parts.extend(more.iter().map(|part| (*part).to_owned()));
    if root.parent().is_some()
        && let Ok(multiarch) = multiarch(root)
    {
        parts.push(format!("lib/{multiarch}"));
    }
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--parents"]).args(parts.iter().map(|part| format!("usr/{part}")));
    step::output(copy.arg(to).current_dir(root))?;
    PgConfig::read(&to.join(config.path.strip_prefix(root)?))
}

/// The folder above `usr/lib/postgresql/18/bin/pg_config`.
fn above(config: &PgConfig) -> Result<&Path> {
    let root = config.path.ancestors().nth(6).filter(|root| config.path.starts_with(root.join("usr/lib/postgresql")));
    root.with_context(|| format!("{} is not in /usr/lib/postgresql, as Debian's", config.path.display()))
}

fn fetch(major: u32, suite: &str, processor: Processor, root: &Path) -> Result<()> {
    let kind = if processor == Processor::Own { Kind::Binaries } else { Kind::BinariesFor("arm64") };
    let dir = step::work_dir()?.join(format!("debian-{suite}"));
    OtherApt::with(suite, kind, &dir, |apt| {
        let server = [format!("postgresql-{major}"), format!("postgresql-{major}-pgvector")];
        let arguments = ["install", "--download-only", "--yes", "--no-install-recommends", &server[0], &server[1]];
        apt.get(&arguments)?;
        // Only this package's headers, without the compiler that it depends on.
        apt.get(&["download", &format!("postgresql-server-dev-{major}")])?;
        let headers = fs::read_dir(apt.files())?.flatten().map(|entry| entry.path());
        step::timed(&format!("unpacking PostgreSQL {major}"), || {
            if root.exists() {
                fs::remove_dir_all(root).with_context(|| format!("cannot delete {}", root.display()))?;
            }
            apt.packages()?.into_iter().chain(headers).try_for_each(|package| unpack(&package, root))?;
            replace_programs(major, processor, root)
        })
    })?;
    fs::remove_dir_all(&dir).with_context(|| format!("cannot delete {}", dir.display()))
}

fn unpack(package: &Path, root: &Path) -> Result<()> {
    step::output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root)).map(drop)
}

/// Moves each program `x` to `x.elf` and puts a starter in its place.
fn replace_programs(major: u32, processor: Processor, root: &Path) -> Result<()> {
    let multiarch = multiarch(root)?;
    let libraries = root.join("usr/lib").join(&multiarch);
    let loader = find(&libraries, |name| name.starts_with("ld-linux") && name.contains(".so."))?;
    let emulator = if processor == Processor::Own { String::new() } else { format!("{} ", aarch64::EMULATOR) };
    let starter = STARTER.replace("MULTIARCH", &multiarch).replace("LOADER", &loader).replace("EMULATOR", &emulator);
    let own = root.join(format!("usr/lib/postgresql/{major}"));
    for folder in ["bin", "lib/pgxs/src/test/regress"] {
        let programs = fs::read_dir(own.join(folder)).with_context(|| format!("{} lacks {folder}", own.display()))?;
        for program in programs.flatten() {
            replace_program(&program.path(), &starter)?;
        }
    }
    Ok(())
}

fn replace_program(path: &Path, starter: &str) -> Result<()> {
    if !path.is_symlink() && path.is_file() && fs::read(path)?.starts_with(b"\x7fELF") {
        fs::rename(path, path.with_extension("elf"))?;
        fs::write(path, starter)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Debian's name for the processor, for instance `x86_64-linux-gnu`.
fn multiarch(root: &Path) -> Result<String> {
    find(&root.join("usr/lib"), |name| name.contains("-linux-gnu"))
}

/// The entry of a directory whose name fits.
fn find(dir: &Path, fits: impl Fn(&str) -> bool) -> Result<String> {
    let names = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?.flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.find(|name| fits(name)).with_context(|| format!("{} lacks a file", dir.display()))
}
