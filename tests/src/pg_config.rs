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
    ///
    /// # Errors
    /// `PG_CONFIG` names none, or all servers are of unsupported releases: set-up shall not install another server beside them unasked.
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
        Self::choose(found)
    }

    fn choose(found: Vec<Self>) -> Result<Option<Self>> {
        let (usable, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.check().is_ok());
        let best = usable.into_iter().reduce(|best, next| if next.rank() > best.rank() { next } else { best });
        if best.is_none()
            && let Some(server) = others.iter().find(|other| other.has_server())
        {
            server.check()?;
        }
        Ok(best)
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
        ensure!(self.has_server(), "{} names no server: {} is missing", self.path.display(), server.display());
        Ok(())
    }

    fn has_server(&self) -> bool {
        self.program("postgres").is_file()
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

    #[test]
    fn servers_of_other_releases_only_are_an_error() {
        let usr = Scratch::new("usr", 0o700).unwrap();
        fs::write(usr.path().join("postgres"), "").unwrap();
        let of = |major: u32, bindir: &Path| PgConfig {
            path: "pg_config".into(),
            major,
            version: format!("{major}.1"),
            bindir: bindir.into(),
            pkglibdir: PathBuf::new(),
            sharedir: PathBuf::new(),
            include: PathBuf::new(),
        };
        let choose = |majors: &[u32]| {
            PgConfig::choose(majors.iter().map(|&major| of(major, usr.path())).collect())
                .map(|best| best.map(|best| best.major))
        };
        assert_eq!(choose(&[]).unwrap(), None);
        assert_eq!(choose(&[15, 19, 17]).unwrap(), Some(17));
        let error = choose(&[19]).unwrap_err().to_string();
        assert_eq!(error, "pg_config is of PostgreSQL 19.1; 13 to 18 are supported");
        // Of a client's headers.
        assert!(PgConfig::choose(vec![of(19, Path::new("/none"))]).unwrap().is_none());
    }
}
