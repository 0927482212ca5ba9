use std::path::Path;

use anyhow::Result;

use super::package::Package;
use crate::install;

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
    for (file, name) in install::sql_files()? {
        package.copy(&file, &format!("usr/share/postgresql/{major}/extension/{name}"), 0o644)?;
    }
    package.documents()?;
    Ok(package)
}
