//! Takes out what `cargo xtask install` put into a PostgreSQL.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use anyhow::{Context, Result, bail, ensure};
use harness::PgConfig;

use crate::{apt, install, setup, step};

const REMAINS: &str = "
What remains, until you remove it (docs/recipes.md, \"Taking it off\"):

  * in databases: the option external of indexes (ALTER INDEX … RESET (external)), and the SQL functions
    (DROP EXTENSION lantern_index); both can still be done now
  * in postgresql.conf: settings hnsw.external_index…; and shared_preload_libraries of servers whose configuration is not
    in the packages' folders: take lantern_index out of it, since they do not start without the library
  * pgvector, PostgreSQL, and the packages that `cargo xtask setup` installed
  * the builder, where you started or installed one";

/// Removes library and SQL, unless a server still preloads the library, or a package has brought them.
pub fn run(pg_config: Option<&Path>) -> Result<()> {
    let config = setup::tools(pg_config)?.context("no PostgreSQL found; --pg-config names one")?;
    let files = installed(&config)?;
    if files.is_empty() {
        println!("lantern_index is not in {}.", config.pkglibdir.display());
    }
    if let Some(package) = files.iter().find_map(|file| package(file)) {
        bail!("lantern_index is of the package {package}; `apt-get remove {package}` removes it");
    }
    // Debian's places: main/postgresql.conf and main/conf.d/, and main/postgresql.auto.conf. Then Red Hat's: data/ with all of them.
    let places = ["/etc/postgresql", "/var/lib/postgresql", "/var/lib/pgsql"];
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let lines = match preloads(&places.map(|dir| Path::new(dir).join(config.major.to_string()))) {
        // Packages let only the server's account read its clusters.
        Err(error) if !apt::is_root() && error.downcast_ref().is_some_and(is_denied) => return run_as_root(&config),
        read => read?,
    };
    ensure!(
        lines.is_empty(),
        "without the library, servers that preload it do not start. Remove lantern_index from these lines first:\n{}",
        lines.join("\n")
    );
    for file in &files {
        let purpose = format!("removing {}", file.display());
        step::output(install::changing(file.parent().context("no directory")?, &purpose)("rm")?.arg(file))?;
        println!("removed {}", file.display());
    }
    println!("{REMAINS}");
    Ok(())
}

fn run_as_root(config: &PgConfig) -> Result<()> {
    let program = env::current_exe().context("cannot find this program")?;
    let mut uninstall = apt::as_root(program, "reading which clusters preload the library")?;
    let status = uninstall.args(["uninstall", "--pg-config"]).arg(&config.path).status().context("cannot run sudo")?;
    ensure!(status.success(), "uninstall as root failed");
    Ok(())
}

fn installed(config: &PgConfig) -> Result<Vec<PathBuf>> {
    let extensions = config.sharedir.join("extension");
    let entries = fs::read_dir(&extensions).with_context(|| format!("cannot read {}", extensions.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name == "lantern_index.control" || (name.starts_with("lantern_index--") && name.ends_with(".sql"))
    });
    files.push(config.pkglibdir.join("lantern_index.so"));
    files.retain(|file| file.is_file());
    files.sort_unstable();
    Ok(files)
}

/// The Debian package that a file belongs to.
fn package(file: &Path) -> Option<String> {
    let said = step::output(Command::new("dpkg").arg("--search").arg(file)).ok()?;
    // postgresql-15-lantern-index: /usr/lib/postgresql/15/lib/lantern_index.so
    said.split_once(": ").map(|(package, _)| package.to_owned())
}

/// The lines that preload the library in configuration files below these folders, or in data directories that such files name, each with
/// file and number. An unreadable file is an error, since it may have such a line.
fn preloads(clusters: &[PathBuf]) -> Result<Vec<String>> {
    let mut files = BTreeMap::new();
    clusters.iter().try_for_each(|dir| read_files(dir, 2, &mut files))?;
    let named: Vec<PathBuf> = files.values().flat_map(|text| data_directories(text)).collect();
    named.iter().try_for_each(|dir| read_files(dir, 1, &mut files))?;
    Ok(files.iter().flat_map(|(path, text)| in_file(path, text)).collect())
}

/// Reads configuration files up to `depth` folders below a directory.
fn read_files(dir: &Path, depth: u32, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let Some(entries) = present(dir, fs::read_dir(dir))? else { return Ok(()) };
    for entry in entries {
        let path = entry.with_context(|| unread(dir))?.path();
        let Some(found) = present(&path, fs::metadata(&path))? else { continue };
        if found.is_dir() {
            if depth > 0 {
                read_files(&path, depth - 1, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "conf")
            && let Some(bytes) = present(&path, fs::read(&path))?
        {
            files.insert(path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(())
}

/// The directories in lines such as `data_directory = '/srv/postgresql'`.
fn data_directories(text: &str) -> impl Iterator<Item = PathBuf> {
    text.lines().filter_map(|line| {
        let setting = line.split('#').next().unwrap_or_default().trim();
        let (name, value) = setting.split_once(|c: char| c == '=' || c.is_whitespace())?;
        let dir = value.trim_matches(|c: char| c == '=' || c == '\'' || c.is_whitespace());
        (name.eq_ignore_ascii_case("data_directory") && dir.starts_with('/')).then(|| dir.into())
    })
}

/// What was read, or None if it does not exist.
fn present<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).with_context(|| unread(path)),
    }
}

fn unread(path: &Path) -> String {
    format!(
        "cannot read {}, where a server may be told to preload the library; run this as root, or as the account that the server runs as",
        path.display()
    )
}

fn in_file(path: &Path, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let setting = line.split('#').next().unwrap_or_default();
        // PostgreSQL ignores the case of settings, not of files.
        setting.to_lowercase().contains("preload_libraries") && setting.contains("lantern_index")
    });
    lines.map(|(number, line)| format!("{}:{}: {}", path.display(), number + 1, line.trim())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use harness::Scratch;

    use super::*;

    fn found(dir: &Path) -> Result<Vec<String>> {
        preloads(&[dir.to_owned()])
    }

    #[test]
    fn servers_that_preload_it_are_found() {
        let dir = Scratch::new("etc", 0o755).unwrap();
        let main = dir.path().join("main/conf.d");
        fs::create_dir_all(&main).unwrap();
        fs::write(main.join("a.conf"), "#shared_preload_libraries = 'lantern_index'\nhnsw.external_index = on\n")
            .unwrap();
        assert_eq!(found(dir.path()).unwrap(), Vec::<String>::new());
        let conf = main.with_file_name("postgresql.conf");
        // With a comment in Latin-1, as editors of earlier days left it.
        let text = b"port = 5433 # f\xfcr uns\nShared_Preload_Libraries = 'lantern_index,vector'  # ours\n";
        fs::write(&conf, text).unwrap();
        let expected = format!("{}:2: Shared_Preload_Libraries = 'lantern_index,vector'  # ours", conf.display());
        assert_eq!(found(dir.path()).unwrap(), [expected]);
        assert_eq!(found(&dir.path().join("none")).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn data_directories_are_searched_once() {
        let [var, srv] = ["var", "srv"].map(|name| Scratch::new(name, 0o755).unwrap());
        // As Red Hat's packages have it, and a cluster elsewhere that a file of Debian's names.
        let (data, elsewhere) = (var.path().join("data"), srv.path().join("my data"));
        let preload = "shared_preload_libraries = 'lantern_index'\n";
        for dir in [&data, &elsewhere] {
            fs::create_dir_all(dir.join("base/1")).unwrap();
            fs::write(dir.join("postgresql.auto.conf"), preload).unwrap();
        }
        let line = |dir: &Path| format!("{}:1: {}", dir.join("postgresql.auto.conf").display(), preload.trim());
        assert_eq!(found(var.path()).unwrap(), [line(&data)]);
        let names = format!("Data_Directory='{}' # moved\n#data_directory = '/'\n", elsewhere.display());
        fs::write(data.join("postgresql.conf"), &names).unwrap();
        let mut both = [line(&data), line(&elsewhere)];
        both.sort();
        assert_eq!(found(var.path()).unwrap(), both);
        fs::write(data.join("postgresql.conf"), format!("data_directory = '{}'\n", data.display())).unwrap();
        assert_eq!(found(var.path()).unwrap(), [line(&data)]);
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_absent() {
        let dir = Scratch::new("etc", 0o755).unwrap();
        // Not even root can follow a link to itself.
        let conf = dir.path().join("postgresql.conf");
        symlink(&conf, &conf).unwrap();
        let error = found(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&conf.display().to_string()) && error.contains("run this as root"), "{error}");
    }
}
