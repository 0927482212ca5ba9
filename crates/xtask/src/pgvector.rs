use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use harness::{MINIMUM_PGVECTOR, PgConfig, pgvector_version};

use crate::{apt, apt_sources, build, step};

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

/// Gets Debian's source package of a newer release, by an apt configuration of our own: that of the machine stays.
fn fetch(config: &PgConfig) -> Result<PathBuf> {
    for program in ["apt-get", "dpkg-source"] {
        ensure!(apt::has_program(program), "Debian's source package cannot be used: there is no {program}");
    }
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("sid");
    let archives = apt_sources::archives(Path::new("/etc/apt"), codename.trim_matches('"'));
    ensure!(!archives.is_empty(), "apt's sources name no archive of Debian {codename}");
    let mut failure = None;
    for suite in SUITES {
        for archive in &archives {
            let dir = step::work_dir()?.join(format!("pgvector-pg{}", config.major));
            match fetch_from(&archive.source_stanza(suite), suite, &dir) {
                Ok(source) => return Ok(source),
                Err(error) => failure = Some(error),
            }
        }
    }
    Err(failure.context("no release to get it from")?)
}

fn fetch_from(stanza: &str, suite: &str, dir: &Path) -> Result<PathBuf> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot delete {}", dir.display()))?;
    }
    for part in ["lists/partial", "cache/archives/partial", "none", "source"] {
        fs::create_dir_all(dir.join(part)).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(dir.join("newer.sources"), stanza)?;
    let path = dir.to_str().context("the path is not UTF-8")?;
    fs::write(dir.join("apt.conf"), apt_conf(path))?;
    let run = |what: &str, arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("APT_CONFIG", dir.join("apt.conf")).current_dir(dir.join("source"));
        step::command(what, "The archive comes from the sources in /etc/apt; is it reachable?", &mut command)
    };
    run(&format!("looking for pgvector in Debian {suite}"), &["update"])?;
    run(&format!("fetching pgvector's source from Debian {suite}"), &["source", "pgvector"])?;
    let source = fs::read_dir(dir.join("source"))?.flatten().map(|entry| entry.path()).find(|path| path.is_dir());
    source.context("apt-get source left no directory")
}

/// Everything of our own but how to reach the network; and none of the machine's hooks.
fn apt_conf(dir: &str) -> String {
    format!(
        "Dir::Etc::SourceList \"{dir}/newer.sources\";\nDir::Etc::SourceParts \"{dir}/none\";\n\
         Dir::Etc::Preferences \"{dir}/none/preferences\";\nDir::Etc::PreferencesParts \"{dir}/none\";\n\
         Dir::State::Lists \"{dir}/lists\";\nDir::Cache \"{dir}/cache\";\n\
         APT::Sandbox::User \"\";\nAPT::Default-Release \"\";\n\
         #clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n"
    )
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
