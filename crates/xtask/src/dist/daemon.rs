use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::package::Package;
use super::source;
use crate::step;

const FIELDS: &str = "\
Recommends: systemd
Description: builder of pgvector HNSW indexes, outside PostgreSQL
 PostgreSQL sends the rows of an index to this daemon, which builds the graph on
 all its cores and sends back finished index pages. The package
 postgresql-NN-lantern-index is what makes PostgreSQL do so.";

/// The package of the program: daemon, unit, configuration, manual, completions.
pub fn package(program: &Path) -> Result<Package> {
    let mut package = Package::new("lantern-index", &["adduser", "init-system-helpers (>= 1.54)"], FIELDS)?;
    package.linked(program, "usr/bin/lantern-index", 0o755)?;
    package.copy(&source("deploy/config.toml"), "etc/lantern-index/config.toml", 0o644)?;
    package.file("DEBIAN/conffiles", b"/etc/lantern-index/config.toml\n", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        package.copy(&source("deploy/debian").join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    let units = source("deploy/systemd");
    for unit in ["lantern-index.service", "lantern-index-maintain.service", "lantern-index-maintain.timer"] {
        package.copy(&units.join(unit), &format!("usr/lib/systemd/system/{unit}"), 0o644)?;
    }
    for example in ["router.conf", "credentials.conf", "textfile.conf"] {
        package.copy(&units.join(example), &format!("usr/share/doc/lantern-index/examples/{example}"), 0o644)?;
    }
    manual(&package, program)?;
    let shells = [
        ("bash", "usr/share/bash-completion/completions/lantern-index"),
        ("zsh", "usr/share/zsh/vendor-completions/_lantern-index"),
        ("fish", "usr/share/fish/vendor_completions.d/lantern-index.fish"),
    ];
    for (shell, to) in shells {
        let text = step::output(Command::new(program).args(["completions", shell]))?;
        package.file(to, text.as_bytes(), 0o644)?;
    }
    package.documents()?;
    Ok(package)
}

fn manual(package: &Package, program: &Path) -> Result<()> {
    let folder = step::work_dir()?.join("man");
    let _ = fs::remove_dir_all(&folder);
    step::output(Command::new(program).arg("man").arg(&folder))?;
    for page in fs::read_dir(&folder).context("no manual pages")?.flatten() {
        let name = page.file_name().to_string_lossy().into_owned();
        package.gzipped(&format!("usr/share/man/man1/{name}"), &fs::read(page.path())?)?;
    }
    Ok(())
}
