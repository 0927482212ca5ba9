//! `cargo xtask dist`: Debian packages of the daemon and of the library, with a bill of materials and checksums.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use harness::PgConfig;

use crate::arguments::DistOptions;
use crate::build::{Place, Profile};
use crate::system::System;
use crate::unpacked::{self, Processor};
use crate::{apt, build, setup, step};

mod check;
mod checksums;
mod daemon;
mod image;
mod library;
mod package;
mod sbom;

use package::Package;

/// The packages of a release.
struct Packages {
    daemon: PathBuf,
    /// By PostgreSQL release.
    libraries: Vec<(u32, PathBuf)>,
}

impl Packages {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.daemon].into_iter().chain(self.libraries.iter().map(|(_, path)| path))
    }
}

/// Makes the packages or the image's content, and says where they are.
pub fn run(options: &DistOptions) -> Result<()> {
    if options.image {
        return image(options);
    }
    if !apt::has_program("dpkg-shlibdeps") {
        apt::install(&["dpkg-dev".to_owned()])?;
    }
    let releases = releases(options)?;
    let out = step::target_dir()?.join("dist");
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    checksums::remove_files(&out)?;
    let place = Place::own()?;
    let programs: Programs = if options.quick { Programs::Built } else { Programs::Compiled(&place) };
    let packages = programs.pack(&releases, &out, Package::build)?;
    let bill = sbom::write(&out)?;
    packages.paths().chain([&bill]).for_each(|path| println!("{}", path.display()));
    let sums = checksums::write(&out)?;
    if options.twice {
        let elsewhere = Place::copy()?;
        same(&packages, &Programs::Compiled(&elsewhere).pack(&releases, &folder(&out, "twice")?, Package::build)?)?;
        println!("Compiled in two folders, the packages are the same.");
    }
    if !options.check {
        return Ok(());
    }
    checksums::check(&sums)?;
    same(&packages, &programs.pack(&releases, &folder(&out, "again")?, Package::build)?)?;
    let older = programs.pack(&releases, &folder(&out, "older")?, |package, out| package.build_as("0.0.1", out))?;
    check::run(&packages, &older, &options.on)
}

fn same(packages: &Packages, others: &Packages) -> Result<()> {
    for (first, second) in packages.paths().zip(others.paths()) {
        ensure!(fs::read(first)? == fs::read(second)?, "{} is not the same when made again", first.display());
    }
    Ok(())
}

fn folder(out: &Path, name: &str) -> Result<PathBuf> {
    let folder = out.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn image(options: &DistOptions) -> Result<()> {
    let config = unpacked::prepare(image::MAJOR, Processor::Own, "the image is for this release")?;
    let library =
        if options.quick { build::extension(&config, Profile::Demo)? } else { Place::own()?.extension(&config)? };
    let out = step::target_dir()?.join("dist");
    let archive = image::build(&library, &out)?;
    let bill = sbom::write(&out)?;
    println!("{}\n{}", archive.display(), bill.display());
    let sums = checksums::write(&out)?;
    if !options.check {
        return Ok(());
    }
    checksums::check(&sums)?;
    image::check(&archive, &config, build::demo_program()?)
}

/// The PostgreSQL releases to pack the library for: the one that the command line names; or the one found here and, on Debian, those that it
/// has for tests. A machine for builders need not have PostgreSQL.
fn releases(options: &DistOptions) -> Result<Vec<PgConfig>> {
    let named = options.postgres.pg_config.as_deref();
    let Some(own) = setup::tools(named)? else {
        ensure!(
            !options.check,
            "no PostgreSQL found to check the packages with; on Debian `cargo xtask setup` installs one"
        );
        println!("No PostgreSQL found: the library is not packed. `cargo xtask setup` installs what it needs.");
        return Ok(Vec::new());
    };
    let alone = named.is_some() || options.quick || !System::own().is_debian();
    let others = unpacked::majors().filter(|&major| !alone && major != own.major);
    let instead = "`--pg-config` names the only release to pack the library for";
    let others = others.map(|major| unpacked::prepare(major, Processor::Own, instead));
    let others: Vec<PgConfig> = others.collect::<Result<_>>()?;
    Ok([own].into_iter().chain(others).collect())
}

/// Where program and libraries come from.
enum Programs<'a> {
    /// From sources.
    Compiled(&'a Place),
    /// What earlier commands have left in `target`.
    Built,
}

impl Programs<'_> {
    /// Makes all packages in `out`.
    fn pack(
        &self,
        releases: &[PgConfig],
        out: &Path,
        build: impl Fn(Package, &Path) -> Result<PathBuf>,
    ) -> Result<Packages> {
        let daemon = build(daemon::package(&self.program()?)?, out)?;
        let library = |config: &PgConfig| {
            let package = library::package(&self.library(config)?, config.major)?;
            Ok((config.major, build(package, out)?))
        };
        Ok(Packages { daemon, libraries: releases.iter().map(library).collect::<Result<_>>()? })
    }

    fn program(&self) -> Result<PathBuf> {
        match self {
            Self::Compiled(place) => place.program(commit().as_deref()),
            Self::Built => built("debug/lantern-index", "cargo build"),
        }
    }

    fn library(&self, config: &PgConfig) -> Result<PathBuf> {
        match self {
            Self::Compiled(place) => place.extension(config),
            Self::Built => built("release/liblantern_index.so", "cargo xtask install"),
        }
    }
}

fn built(path: &str, how: &str) -> Result<PathBuf> {
    let path = step::target_dir()?.join(path);
    ensure!(path.is_file(), "{} is not built yet: `{how}`", path.display());
    Ok(path)
}

/// The commit that `lantern-index --version` prints. An archive of the sources has none.
fn commit() -> Option<String> {
    let mut git = std::process::Command::new("git");
    let commit = step::output(git.args(["rev-parse", "--short=12", "HEAD"]).current_dir(harness::root()));
    commit.ok().map(|commit| commit.trim().to_owned())
}

/// A file of the repository.
fn source(path: impl AsRef<Path>) -> PathBuf {
    harness::root().join(path)
}
