use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result, ensure};
use harness::PgConfig;

use crate::build::Profile;
use crate::{apt, build, setup};

const NEXT: &str = "
In postgresql.conf, then restart PostgreSQL:

    shared_preload_libraries = 'lantern_index'

If others are preloaded too, lantern_index goes before vector: 'lantern_index,vector'. For a builder on this machine:

    hnsw.external_index_secure = off

For one on another machine:

    hnsw.external_index_host = 'builder.example'
    hnsw.external_index_sslmode = 'verify-full'
    hnsw.external_index_sslrootcert = '/etc/postgresql/builder.pem'
    hnsw.external_index_token = '…'";

/// Builds the extension and puts it into a PostgreSQL, which must have its headers.
pub fn run(pg_config: Option<&Path>) -> Result<()> {
    let config = setup::tools(pg_config)?.context("no PostgreSQL found; `cargo xtask setup` installs one")?;
    ensure!(
        config.has_headers(),
        "PostgreSQL's headers are missing in {}; `cargo xtask setup` installs them",
        config.include.display()
    );
    install(&config, Profile::Release)?;
    println!("{NEXT}");
    Ok(())
}

/// Builds and copies.
pub fn install(config: &PgConfig, profile: Profile) -> Result<()> {
    put_all(config, &build::extension(config, profile)?)
}

/// Copies this library and its SQL.
pub fn put_all(config: &PgConfig, library: &Path) -> Result<()> {
    let sources = harness::root().join("crates/extension");
    let extensions = config.sharedir.join("extension");
    put(library, &config.pkglibdir.join("lantern_index.so"), 0o755)?;
    put(&sources.join("lantern_index.control"), &extensions.join("lantern_index.control"), 0o644)?;
    for script in fs::read_dir(sources.join("sql"))?.flatten() {
        put(&script.path(), &extensions.join(script.file_name()), 0o644)?;
    }
    println!("lantern_index is installed in {} and {}", config.pkglibdir.display(), extensions.display());
    Ok(())
}

/// Copies a file next to its destination and renames it: a server that starts meanwhile sees the old or the new file.
fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let name = to.file_name().context("no file name")?.to_string_lossy();
    let temporary: PathBuf = to.with_file_name(format!(".{name}.{}", process::id()));
    let purpose = format!("writing {}", to.display());
    let run = |mut command: Command| -> Result<()> {
        let output = command.output().with_context(|| format!("{purpose}: cannot start a program"))?;
        ensure!(output.status.success(), "{purpose} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    };
    let command = changing(to.parent().context("no directory")?, &purpose);
    let mut copy = command("install")?;
    copy.arg(format!("--mode={mode:o}")).arg(from).arg(&temporary);
    let mut rename = command("mv")?;
    rename.arg("--force").arg(&temporary).arg(to);
    let result = run(copy).and_then(|()| run(rename));
    if result.is_err() {
        let _ = command("rm").map(|mut remove| remove.arg("--force").arg(&temporary).status());
    }
    result
}

/// Starts programs that change a directory: as root if we may not.
pub fn changing(dir: &Path, purpose: &str) -> impl Fn(&str) -> Result<Command> {
    let writable = is_writable(dir);
    move |program| if writable { Ok(Command::new(program)) } else { apt::as_root(program, purpose) }
}

/// Whether we may make files in a directory.
fn is_writable(dir: &Path) -> bool {
    let probe = dir.join(format!(".lantern_index.{}", process::id()));
    let made = fs::File::create(&probe).is_ok();
    let _ = fs::remove_file(probe);
    made
}
