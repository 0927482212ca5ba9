use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::Vectors;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the member lies in the workspace")
}

/// The `lantern-index` program: `LANTERN_INDEX`, else the one built beside this test.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("LANTERN_INDEX") {
        return Ok(path.into());
    }
    // target/debug/deps/TEST -> target/debug/lantern-index
    let own = env::current_exe().context("cannot tell where this program lies")?;
    let path = own.ancestors().skip(1).take(2).map(|dir| dir.join("lantern-index")).find(|path| path.is_file());
    let path = path.context("lantern-index is not built; `cargo build -p lantern-index` does it")?;
    ensure!(path.is_absolute(), "{} is not absolute", path.display());
    Ok(path)
}

/// A data set of `tests/data`, `minilm-384` or `glove-100`: base vectors and queries.
pub fn data_set(name: &str) -> Result<(Vectors, Vectors)> {
    let dir = root().join("tests/data").join(name);
    Ok((Vectors::read(&dir.join("base.npy"))?, Vectors::read(&dir.join("query.npy"))?))
}
