//! A daemon whose spool directory is too small.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use harness::{Scratch, binary};

/// The arguments by which `unshare` gives a process a file system of its own; `None` if it cannot.
pub fn small_disk() -> Option<&'static [&'static str]> {
    const WAYS: [&[&str]; 2] = [&["--mount"], &["--mount", "--user", "--map-root-user"]];
    WAYS.into_iter().find(|way| {
        let mut unshare = Command::new("unshare");
        let output = unshare.args(*way).args(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// A script that runs the daemon with a spool directory too small for any build.
pub fn on_a_small_disk(folder: &Scratch) -> Result<PathBuf> {
    let way = small_disk().context("this system gives us no small disk")?;
    let (script, spool) = (folder.path().join("daemon"), folder.path().join("spool"));
    let text = format!(
        "#!/bin/sh\nexec unshare {} sh -c 'mount -t tmpfs -o size=1m tmpfs {} && exec \"$0\" \"$@\"' {} \"$@\"\n",
        way.join(" "),
        spool.display(),
        binary()?.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
