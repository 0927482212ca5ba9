use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::package::Package;
use super::source;

const FIELDS: &str = "\
Recommends: postgresql-NN-pgvector
Suggests: lantern-index
Description: pgvector HNSW indexes built outside PostgreSQL NN
 A library for shared_preload_libraries. With it, CREATE INDEX … USING hnsw …
 WITH (external = true) sends the rows to a builder, the package lantern-index
 on this or another machine, and takes back finished index pages.";

/// The package of the library, for a release of Debian's PostgreSQL.
pub fn package(library: &Path, major: u32) -> Result<Package> {
    let server = format!("postgresql-{major}");
    let fields = FIELDS.replace("NN", &major.to_string());
    let mut package = Package::new(&format!("{server}-lantern-index"), &[&server], &fields)?;
    package.linked(library, &format!("usr/lib/postgresql/{major}/lib/lantern_index.so"), 0o644)?;
    let folder = format!("usr/share/postgresql/{major}/extension");
    let sources = source("crates/extension");
    package.copy(&sources.join("lantern_index.control"), &format!("{folder}/lantern_index.control"), 0o644)?;
    for script in fs::read_dir(sources.join("sql")).context("no SQL scripts")?.flatten() {
        package.copy(&script.path(), &format!("{folder}/{}", script.file_name().to_string_lossy()), 0o644)?;
    }
    package.documents()?;
    Ok(package)
}
