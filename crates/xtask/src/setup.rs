use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use harness::{PgConfig, pgvector_version};

use crate::system::System;
use crate::{apt, pgvector, step};

/// Installs what is missing, and prints what was found.
pub fn run(pg_config: Option<&Path>, replace_pgvector: bool) -> Result<PgConfig> {
    let config = prepare(pg_config, replace_pgvector)?;
    let version = pgvector_version(&config).unwrap_or_default();
    println!("PostgreSQL {} ({}), pgvector {version}", config.version, config.path.display());
    Ok(config)
}

fn prepare(pg_config: Option<&Path>, replace_pgvector: bool) -> Result<PgConfig> {
    let system = System::own();
    system.check()?;
    if !replace_pgvector && let Some(config) = tools(pg_config)? {
        pgvector::refuse_older(&config)?;
    }
    // If nothing is missing, apt is not called, so that this works without a network.
    if !apt::has_program("apt-get") && !is_complete(pg_config)? {
        bail!("something is missing that set-up cannot install here\n{}", system.commands());
    }
    let missing = missing(pg_config)?;
    if !missing.is_empty() {
        refuse_old_archive(&system, pg_config)?;
        apt::install(&missing)?;
    }
    let config = tools(pg_config)?.context("PostgreSQL was installed, but cannot be found")?;
    ensure!(config.has_headers(), "{} lacks {}/postgres.h", config.path.display(), config.include.display());
    ensure!(
        find_libclang().is_some(),
        "libclang was installed, but cannot be found; LIBCLANG_PATH may name its directory"
    );
    if !pgvector::installed(&config) {
        pgvector::install(&config)?;
    }
    Ok(config)
}

/// Whether nothing is missing.
fn is_complete(pg_config: Option<&Path>) -> Result<bool> {
    let config = tools(pg_config)?;
    let ready = |config: &PgConfig| config.has_headers() && pgvector::installed(config);
    let compilers = apt::has_program("c++") && apt::has_program("cc");
    Ok(config.as_ref().is_some_and(ready) && find_libclang().is_some() && compilers)
}

/// Fails where pgvector would be too old, before anything is installed: only Debian's archives have sources of a newer one.
fn refuse_old_archive(system: &System, pg_config: Option<&Path>) -> Result<()> {
    let config = tools(pg_config)?;
    if system.is_debian() || config.as_ref().is_some_and(pgvector::installed) {
        return Ok(());
    }
    fetch_lists()?;
    let major = config.map_or_else(default_release, |config| Ok(config.major))?;
    if let Err(error) = pgvector::can_be_installed(major) {
        bail!("{error}\n{}", system.commands());
    }
    Ok(())
}

/// The PostgreSQL to use, if there is one.
pub fn tools(pg_config: Option<&Path>) -> Result<Option<PgConfig>> {
    let Some(path) = pg_config else { return PgConfig::find() };
    let config = PgConfig::read(path)?;
    config.check()?;
    Ok(Some(config))
}

/// The packages that are missing.
fn missing(pg_config: Option<&Path>) -> Result<Vec<String>> {
    let mut packages = Vec::new();
    let config = tools(pg_config)?;
    let major = match &config {
        Some(config) => config.major,
        None => {
            let major = default_release()?;
            packages.push(format!("postgresql-{major}"));
            major
        }
    };
    if !config.as_ref().is_some_and(PgConfig::has_headers) {
        packages.push(format!("postgresql-server-dev-{major}"));
    }
    if find_libclang().is_none() {
        packages.push("libclang-dev".to_owned());
    }
    if !(apt::has_program("c++") && apt::has_program("cc")) {
        packages.push("g++".to_owned());
    }
    if !config.as_ref().is_some_and(pgvector::installed) {
        // To unpack and compile pgvector, should the distribution's be too old.
        packages.extend(["make", "dpkg-dev"].iter().filter(|tool| !has_tool(tool)).map(|&tool| tool.to_owned()));
    }
    Ok(packages)
}

fn has_tool(package: &str) -> bool {
    apt::has_program(if package == "dpkg-dev" { "dpkg-source" } else { package })
}

/// The release behind the distribution's package `postgresql`, whose version begins like `15+248`; or the newest supported one if that is
/// newer, as in PGDG's archive.
fn default_release() -> Result<u32> {
    fetch_lists()?;
    let version =
        apt::candidate("postgresql").context("no PostgreSQL here, and apt does not know the package postgresql")?;
    supported(&version).with_context(|| format!("the package postgresql has the strange version {version}"))
}

/// The release to use where the package `postgresql` has this version.
fn supported(version: &str) -> Option<u32> {
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(|release: u32| release.min(*PgConfig::SUPPORTED.end()))
}

/// Fetches apt's package lists if there are none, as in a fresh container.
fn fetch_lists() -> Result<()> {
    if apt::candidate("postgresql").is_none() && apt::has_program("apt-get") {
        step::command("apt-get update", "", apt::as_root("apt-get", "`apt-get update`")?.arg("update"))?;
    }
    Ok(())
}

/// libclang, which generates the bindings to PostgreSQL's headers.
fn find_libclang() -> Option<PathBuf> {
    let mut dirs: Vec<PathBuf> = env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    for parent in ["/usr/lib", "/usr/lib64", "/usr/local/lib"] {
        dirs.push(parent.into());
        let llvm = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
        // /usr/lib/llvm-14/lib, /usr/lib/x86_64-linux-gnu
        dirs.extend(llvm.flat_map(|path| [path.join("lib"), path]));
    }
    dirs.into_iter().find(|dir| {
        let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok()).any(|name| {
            name == "libclang.so" || (name.starts_with("libclang-") && name.contains(".so") && !name.contains("cpp"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::supported;

    #[test]
    fn a_release_that_is_too_new_is_not_installed() {
        assert_eq!(["15+248+deb12u1", "18+284.pgdg13+1", "19+290"].map(supported), [Some(15), Some(18), Some(18)]);
        assert_eq!(supported("new"), None);
    }
}
