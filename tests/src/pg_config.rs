use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

/// An installed PostgreSQL, as its `pg_config` describes it.
#[derive(Clone, Debug)]
pub struct PgConfig {
    /// The `pg_config` program.
    pub path: PathBuf,
    /// For instance 15.
    pub major: u32,
    /// For instance `15.20`.
    pub version: String,
    /// Directory of `initdb` and `postgres`.
    pub bindir: PathBuf,
    /// Directory of loadable libraries.
    pub pkglibdir: PathBuf,
    /// Directory above `extension/`.
    pub sharedir: PathBuf,
    /// Directory of `postgres.h`.
    pub include: PathBuf,
}

impl PgConfig {
    /// The releases the extension can be built for.
    pub const SUPPORTED: std::ops::RangeInclusive<u32> = 13..=18;

    /// Asks the program at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let lines = ask(path, &["--version", "--bindir", "--pkglibdir", "--sharedir", "--includedir-server"])?;
        let [version, bindir, pkglibdir, sharedir, include] = &lines[..] else {
            bail!("{} did not answer as pg_config does", path.display());
        };
        // "PostgreSQL 15.20 (Debian 15.20-0+deb12u1)"
        let version = version.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
        let major = digits.parse().with_context(|| format!("{}: strange version {version:?}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            major,
            version,
            bindir: bindir.into(),
            pkglibdir: pkglibdir.into(),
            sharedir: sharedir.into(),
            include: include.into(),
        })
    }

    /// The PostgreSQL to use: `PG_CONFIG`, else the newest one under `/usr/lib/postgresql`, else that in `PATH`.
    /// One with its headers goes before one without. None if there is no server.
    pub fn find() -> Result<Option<Self>> {
        if let Some(path) = env::var_os("PG_CONFIG").filter(|path| !path.is_empty()) {
            let found = Self::read(Path::new(&path)).context("PG_CONFIG names no usable pg_config")?;
            found.check()?;
            return Ok(Some(found));
        }
        let mut found: Vec<Self> = debian_paths().iter().filter_map(|path| Self::read(path).ok()).collect();
        if let Ok(path) = Self::read(Path::new("pg_config")) {
            found.push(path);
        }
        found.retain(|found| found.check().is_ok());
        Ok(found.into_iter().reduce(|best, next| if next.rank() > best.rank() { next } else { best }))
    }

    /// The PostgreSQL to use.
    ///
    /// # Errors
    /// There is none.
    pub fn require() -> Result<Self> {
        Self::find()?.context("no PostgreSQL server found; `cargo xtask setup` installs one, PG_CONFIG names one")
    }

    /// Whether extensions can be compiled for it.
    pub fn has_headers(&self) -> bool {
        self.include.join("postgres.h").is_file()
    }

    /// The extension's cargo feature for this release, for instance `pg15`.
    pub fn feature(&self) -> String {
        format!("pg{}", self.major)
    }

    /// A server program, for instance `initdb`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }

    /// Whether it is a server, of a release we support.
    pub fn check(&self) -> Result<()> {
        ensure!(
            Self::SUPPORTED.contains(&self.major),
            "{} is of PostgreSQL {}; {} to {} are supported",
            self.path.display(),
            self.version,
            Self::SUPPORTED.start(),
            Self::SUPPORTED.end()
        );
        let server = self.program("postgres");
        ensure!(server.is_file(), "{} names no server: {} is missing", self.path.display(), server.display());
        Ok(())
    }

    fn rank(&self) -> (bool, u32) {
        (self.has_headers(), self.major)
    }
}

fn ask(path: &Path, flags: &[&str]) -> Result<Vec<String>> {
    let output = Command::new(path).args(flags).output().with_context(|| format!("cannot run {}", path.display()))?;
    ensure!(output.status.success(), "{} failed: {}", path.display(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn debian_paths() -> Vec<PathBuf> {
    let Ok(releases) = fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    releases.flatten().map(|release| release.path().join("bin/pg_config")).filter(|path| path.is_file()).collect()
}
