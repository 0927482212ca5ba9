//! Type checks for PostgreSQL releases whose headers are not at hand.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;
use harness::PgConfig;

use crate::{build, step};

/// pgrx ships bindings for each release for its documentation. `docsrs`, set for that crate alone, makes it use them instead of
/// generating bindings from PostgreSQL's headers.
const COMPILER: &str = r#"#!/bin/sh
[ "$CARGO_PKG_NAME" = pgrx-pg-sys ] && set -- "$@" --cfg docsrs
exec "$@"
"#;

/// Runs clippy on the extension for every supported release but `native`, which the caller has checked with its headers.
pub fn check(native: u32) -> Result<()> {
    let compiler = compiler()?;
    for major in PgConfig::SUPPORTED.filter(|&major| major != native) {
        let mut clippy = build::cargo(None);
        clippy.args(["clippy", "--quiet", "--all-targets"]).args(build::extension_arguments(major));
        clippy.args(["--", "-D", "warnings"]).env("RUSTC_WRAPPER", &compiler).env("DOCS_RS", "1");
        let what = format!("clippy of the extension for PostgreSQL {major}");
        step::timed(&what, || step::shown(&mut clippy))?;
    }
    Ok(())
}

fn compiler() -> Result<PathBuf> {
    let path = step::work_dir()?.join("rustc-with-bindings");
    fs::write(&path, COMPILER)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
