//! The content of CloudNativePG's extension image: the library and its SQL in a folder of their own, which PostgreSQL (18 and later)
//! finds by `dynamic_library_path` and `extension_control_path`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::{Builder, BuilderOptions, Cluster, PgConfig, Scratch};

use super::package::{Tree, architecture, seconds};
use super::source;
use crate::step::{self, output};
use crate::{install, unpacked};

/// The first release with `extension_control_path`, and the newest that there is.
pub const MAJOR: u32 = 18;

/// The uid and gid of CloudNativePG's images.
const ACCOUNT: &str = "65532";

/// Writes the folder and an archive of it into `out`; returns the archive's path.
pub fn build(library: &Path, out: &Path) -> Result<PathBuf> {
    let tree = Tree::new(&out.join(format!("extension-image-{MAJOR}")))?;
    tree.linked(library, "lib/lantern_index.so", 0o755)?;
    for (file, name) in install::sql_files()? {
        tree.copy(&file, &format!("share/extension/{name}"), 0o644)?;
    }
    // The image has no /usr/share/common-licenses.
    let licenses = format!("licenses/postgresql-{MAJOR}-lantern-index");
    tree.copy(&source("deploy/debian/copyright"), &format!("{licenses}/copyright"), 0o644)?;
    tree.copy(&source("LICENSE"), &format!("{licenses}/LICENSE"), 0o644)?;
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), architecture()?);
    let archive = out.join(format!("lantern-index-extension_{version}_pg{MAJOR}_{architecture}.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--numeric-owner", "--format=ustar"]);
    tar.args([format!("--owner={ACCOUNT}"), format!("--group={ACCOUNT}"), format!("--mtime=@{}", seconds()?)]);
    output(tar.arg("--file").arg(&archive).arg("-C").arg(tree.root()).arg("."))?;
    Ok(archive)
}

/// Builds an index with a PostgreSQL whose own folders have neither pgvector nor the library: as in a pod, each has its own folder.
pub fn check(archive: &Path, config: &PgConfig, program: PathBuf) -> Result<()> {
    let postgres = unpacked::runnable(config)?;
    let place = Scratch::new("extensions", 0o755)?;
    let [ours, vector] = ["lantern-index", "pgvector"].map(|name| place.path().join(name));
    fs::create_dir(&ours)?;
    output(Command::new("tar").args(["--extract", "--no-same-owner", "--file"]).arg(archive).arg("-C").arg(&ours))?;
    separate(&postgres.config, &vector)?;
    let builder = Builder::start_with(&BuilderOptions::default().by(program))?;
    let paths = |folder: &str| format!("{}/{folder}:{}/{folder}", ours.display(), vector.display());
    let settings = format!(
        "{}shared_preload_libraries = 'lantern_index, vector'\nextension_control_path = '$system:{}'\n\
         dynamic_library_path = '$libdir:{}'\n",
        builder.settings(),
        paths("share"),
        paths("lib")
    );
    let what = format!("an external build by PostgreSQL {} with the image's folder", config.version);
    step::timed(&what, || {
        let cluster = Cluster::start_with(postgres.config.clone(), &settings)?;
        let mut session = cluster.database("image")?;
        session.execute(
            "CREATE EXTENSION lantern_index; CREATE TABLE t (v vector(3)); \
             INSERT INTO t SELECT ARRAY[random(), random(), random()]::real[] FROM generate_series(1, 2000); \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true)",
        )?;
        let advice: String = session.value("SELECT advice FROM lantern_index.check('t_idx', 100)")?;
        ensure!(advice == "ok", "the index: {advice}");
        builder.expect_builds(1)
    })
}

/// Moves pgvector out of PostgreSQL's own folders, and deletes the library that tests have installed there.
fn separate(config: &PgConfig, vector: &Path) -> Result<()> {
    for (from, to) in [(config.pkglibdir.clone(), "lib"), (config.sharedir.join("extension"), "share/extension")] {
        let to = vector.join(to);
        fs::create_dir_all(&to)?;
        for file in fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with("lantern_index") {
                fs::remove_file(file.path())?;
            } else if name.starts_with("vector.") || name.starts_with("vector--") {
                fs::rename(file.path(), to.join(name))?;
            }
        }
    }
    Ok(())
}
