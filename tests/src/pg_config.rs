use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::step;

/// An installed PostgreSQL, as its `pg_config` describes it.
#[derive(Clone, Debug)]
pub struct PgConfig {
    /// The `pg_config` program.
    pub path: PathBuf,
    /// Such as 15.
    pub major: u32,
    /// Such as `15.20`.
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

    /// Runs the `pg_config` program at `path`.
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

    /// The PostgreSQL to use: `PG_CONFIG`, else the newest one under `/usr/lib/postgresql` (Debian) or `/usr/pgsql-*` (PostgreSQL's own
    /// packages for Red Hat's systems), else that in `PATH`. One with headers takes precedence. `None` if there is no server.
    pub fn find() -> Result<Option<Self>> {
        if let Some(path) = env::var_os("PG_CONFIG").filter(|path| !path.is_empty()) {
            let found = Self::read(Path::new(&path)).context("PG_CONFIG names no usable pg_config")?;
            found.check()?;
            return Ok(Some(found));
        }
        let mut found: Vec<Self> =
            packaged(Path::new("/usr")).iter().filter_map(|path| Self::read(path).ok()).collect();
        if let Ok(path) = Self::read(Path::new("pg_config")) {
            found.push(path);
        }
        found.retain(|found| found.check().is_ok());
        Ok(found.into_iter().reduce(|best, next| if next.rank() > best.rank() { next } else { best }))
    }

    /// The PostgreSQL to use.
    ///
    /// # Errors
    /// There is no usable server.
    pub fn require() -> Result<Self> {
        Self::find()?.context("no PostgreSQL server found; `cargo xtask setup` installs one, PG_CONFIG names one")
    }

    /// Whether extensions can be compiled for it.
    pub fn has_headers(&self) -> bool {
        self.include.join("postgres.h").is_file()
    }

    /// The compiler's flags with which it was built.
    ///
    /// # Errors
    /// `pg_config` does not run.
    pub fn cflags(&self) -> Result<String> {
        Ok(ask(&self.path, &["--cflags"])?.join(" "))
    }

    /// The extension's cargo feature for this release, such as `pg15`.
    pub fn feature(&self) -> String {
        format!("pg{}", self.major)
    }

    /// The path of a server program, such as `initdb`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }

    /// Checks that it has a server, of a supported release.
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
    Ok(step::output(Command::new(path).args(flags))?.lines().map(str::to_owned).collect())
}

/// The `pg_config` of each packaged release below `/usr`.
fn packaged(usr: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_red_hats =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pgsql-"));
    let mut releases: Vec<PathBuf> = entries(&usr.join("lib/postgresql")).collect();
    releases.extend(entries(usr).filter(is_red_hats));
    releases.into_iter().map(|release| release.join("bin/pg_config")).filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn packaged_releases_are_found() {
        let usr = Scratch::new("usr", 0o700).unwrap();
        for place in ["lib/postgresql/15/bin", "pgsql-18/bin", "pgsql/bin"] {
            fs::create_dir_all(usr.path().join(place)).unwrap();
            fs::write(usr.path().join(place).join("pg_config"), "").unwrap();
        }
        fs::create_dir_all(usr.path().join("lib/postgresql/17")).unwrap();
        let expected = ["lib/postgresql/15/bin/pg_config", "pgsql-18/bin/pg_config"].map(|path| usr.path().join(path));
        assert_eq!(packaged(usr.path()), expected);
    }
}
