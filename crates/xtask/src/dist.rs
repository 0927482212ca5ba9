//! `cargo xtask dist`: Debian packages of the daemon and of the library, with a bill of materials and checksums.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::PgConfig;

use crate::arguments::DistOptions;
use crate::build::Profile;
use crate::unpacked::{self, Processor};
use crate::{apt, build, setup, step};

mod check;
mod daemon;
mod image;
mod library;
mod package;
mod sbom;

/// Makes the packages or the image's content, and says where they are.
pub fn run(options: &DistOptions) -> Result<()> {
    if options.image {
        return image(options);
    }
    let config =
        setup::tools(options.postgres.pg_config.as_deref())?.context("no PostgreSQL found; `cargo xtask setup`")?;
    let missing: Vec<String> = [("dpkg-shlibdeps", "dpkg-dev")]
        .iter()
        .filter(|(tool, _)| !apt::has_program(tool))
        .map(|(_, name)| (*name).to_owned())
        .collect();
    if !missing.is_empty() {
        apt::install(&missing)?;
    }
    let (program, shared) = sources(options, &config)?;
    let out = step::target_dir()?.join("dist");
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let daemon = daemon::package(&program)?.build(&out)?;
    let library = library::package(&shared, config.major)?.build(&out)?;
    let bill = sbom::write(&out)?;
    let sums = checksums(&out, &[&daemon, &library, &bill])?;
    println!("{}\n{}\n{}\n{}", daemon.display(), library.display(), bill.display(), sums.display());
    if !options.check {
        return Ok(());
    }
    let again = out.join("again");
    fs::create_dir_all(&again).with_context(|| format!("cannot make {}", again.display()))?;
    for (first, second) in [
        (&daemon, daemon::package(&program)?.build(&again)?),
        (&library, library::package(&shared, config.major)?.build(&again)?),
    ] {
        ensure!(fs::read(first)? == fs::read(&second)?, "{} is not the same when made again", first.display());
    }
    check::run(&daemon, &library, config.major)
}

/// Writes the SHA-256 of each file, as `sha256sum --check` reads it.
fn checksums(out: &Path, files: &[&PathBuf]) -> Result<PathBuf> {
    let names = files.iter().filter_map(|path| path.file_name());
    let sums = package::run(Command::new("sha256sum").args(names).current_dir(out))?;
    let path = out.join("SHA256SUMS");
    fs::write(&path, sums).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn image(options: &DistOptions) -> Result<()> {
    let profile = if options.quick { Profile::Demo } else { Profile::Release };
    let config = unpacked::prepare(image::MAJOR, Processor::Own)?;
    let library = build::extension(&config, profile)?;
    let out = step::target_dir()?.join("dist");
    let archive = image::build(&library, &out)?;
    println!("{}", archive.display());
    if options.check { image::check(&archive, &config, build::demo_program()?) } else { Ok(()) }
}

/// Program and library.
fn sources(options: &DistOptions, config: &PgConfig) -> Result<(PathBuf, PathBuf)> {
    if !options.quick {
        let commit =
            package::run(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(harness::root()));
        // An archive of the sources has no commit.
        let program = build::program_of(commit.ok().as_deref().map(str::trim))?;
        return Ok((program, build::extension(config, Profile::Release)?));
    }
    let target = step::target_dir()?;
    let (program, shared) = (target.join("debug/lantern-index"), target.join("release/liblantern_index.so"));
    for (path, how) in [(&program, "cargo build"), (&shared, "cargo xtask install")] {
        ensure!(path.is_file(), "{} is not built yet: `{how}`", path.display());
    }
    Ok((program, shared))
}

/// A file of the repository.
fn source(path: impl AsRef<Path>) -> PathBuf {
    harness::root().join(path)
}
