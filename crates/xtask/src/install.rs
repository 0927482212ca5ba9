use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result, ensure};
use harness::PgConfig;

use crate::build::Profile;
use crate::{apt, build, setup, step};

const NEXT: &str = "
In postgresql.conf, then restart PostgreSQL:

    shared_preload_libraries = 'lantern_index'

If others are preloaded too, lantern_index goes before vector: 'lantern_index,vector'. For a builder on this machine:

    hnsw.external_index_secure = off

For one on another machine:

    hnsw.external_index_host = 'builder.example'
    hnsw.external_index_sslmode = 'verify-full'
    hnsw.external_index_sslrootcert = '/etc/postgresql/builder.pem'
    hnsw.external_index_token_file = '…'";

/// Builds the extension and puts it into a PostgreSQL, which must have its headers.
pub fn run(pg_config: Option<&Path>) -> Result<()> {
    let config = setup::tools(pg_config)?.context("no PostgreSQL found; `cargo xtask setup` installs one")?;
    ensure!(
        config.has_headers(),
        "PostgreSQL's headers are missing in {}; Debian's and Ubuntu's package postgresql-server-dev-{} has them",
        config.include.display(),
        config.major
    );
    install(&config, Profile::Release)?;
    println!("{NEXT}");
    Ok(())
}

/// Fails where [`install`] could not write, which would otherwise show only after minutes of compilation.
pub fn check_rights(config: &PgConfig) -> Result<()> {
    let extensions = config.sharedir.join("extension");
    ensure!(
        [&config.pkglibdir, &extensions].iter().all(|dir| is_writable(dir)) || apt::may_be_root(),
        "installing lantern_index into {} and {} needs root; run this as root, or `sudo -v` first",
        config.pkglibdir.display(),
        extensions.display()
    );
    Ok(())
}

pub fn install(config: &PgConfig, profile: Profile) -> Result<()> {
    check_rights(config)?;
    put_all(config, &build::extension(config, profile)?)
}

/// Copies this library and its SQL.
pub fn put_all(config: &PgConfig, library: &Path) -> Result<()> {
    let extensions = config.sharedir.join("extension");
    put(library, &config.pkglibdir.join("lantern_index.so"), 0o755)?;
    for (file, name) in sql_files()? {
        put(&file, &extensions.join(name), 0o644)?;
    }
    println!("lantern_index is installed in {} and {}", config.pkglibdir.display(), extensions.display());
    Ok(())
}

/// The extension's control file and SQL scripts, with their names.
pub fn sql_files() -> Result<Vec<(PathBuf, String)>> {
    let sources = harness::root().join("crates/extension");
    let scripts = fs::read_dir(sources.join("sql")).context("no SQL scripts")?.flatten();
    let scripts = scripts.map(|script| (script.path(), script.file_name().to_string_lossy().into_owned()));
    let control = "lantern_index.control";
    Ok(scripts.chain([(sources.join(control), control.to_owned())]).collect())
}

/// Copies a file next to its destination and renames it: a server that starts meanwhile sees the old or the new file.
fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let name = to.file_name().context("no file name")?.to_string_lossy();
    let temporary: PathBuf = to.with_file_name(format!(".{name}.{}", process::id()));
    let purpose = format!("copying {} to {}", from.display(), to.display());
    let command = changing(to.parent().context("no directory")?, &purpose);
    let mut copy = command("install")?;
    copy.arg(format!("--mode={mode:o}")).arg(from).arg(&temporary);
    let mut rename = command("mv")?;
    rename.arg("--force").arg(&temporary).arg(to);
    let result = step::output(&mut copy).and_then(|_| step::output(&mut rename));
    if result.is_err() {
        let _ = command("rm").map(|mut remove| remove.arg("--force").arg(&temporary).status());
    }
    result.map(drop)
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

#[cfg(test)]
mod tests {
    use std::env;

    use harness::{Account, Scratch};

    use super::*;

    /// Runs this program again under an account without rights, where there is no sudo.
    #[test]
    fn without_root_rights_nothing_is_installed() {
        let dir = Scratch::new("without-root", 0o755).unwrap();
        let program = dir.path().join("tests");
        fs::copy(env::current_exe().unwrap(), &program).unwrap();
        let mut inside = Command::new(program);
        inside.args(["install::tests::nothing_is_written", "--exact", "--ignored", "--nocapture"]).env("PATH", "/none");
        if let Some(account) = Account::for_postgres().unwrap() {
            account.apply(&mut inside);
        }
        let output = step::output(inside.current_dir("/")).unwrap();
        assert!(output.contains("1 passed"), "{output}");
    }

    #[test]
    #[ignore = "without_root_rights_nothing_is_installed runs it"]
    fn nothing_is_written() {
        let error = put(Path::new("/built/x.so"), Path::new("/lantern_index.so"), 0o644).unwrap_err().to_string();
        assert!(error.starts_with("copying /built/x.so to /lantern_index.so needs root"), "{error}");
        let root = PathBuf::from("/");
        let config = PgConfig {
            path: root.clone(),
            major: 18,
            version: String::new(),
            bindir: root.clone(),
            pkglibdir: root.clone(),
            sharedir: root.clone(),
            include: root,
        };
        let error = install(&config, Profile::Demo).unwrap_err().to_string();
        assert!(error.starts_with("installing lantern_index into / and /extension needs root"), "{error}");
    }
}
