//! Installs packages of the distribution, and runs commands as root.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::step;

/// Whether a program is in `PATH`.
pub fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// A command that runs as root: directly if this process does, else by sudo without a password.
///
/// # Errors
/// This process is not root, and sudo needs a password; the error quotes `purpose`.
pub fn as_root(program: impl AsRef<Path>, purpose: &str) -> Result<Command> {
    let program = program.as_ref();
    if is_root() {
        return Ok(Command::new(program));
    }
    ensure!(may_be_root(), "{purpose} needs root; run this as root, or `sudo -v` first, or do it yourself");
    let mut command = Command::new("sudo");
    command.arg("-n").arg(program);
    Ok(command)
}

/// Whether [`as_root`] works: this process runs as root, or sudo needs no password now.
pub fn may_be_root() -> bool {
    let sudo = || Command::new("sudo").args(["-n", "true"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    is_root() || sudo().is_ok_and(|status| status.success())
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Installs packages of the distribution.
pub fn install(packages: &[String]) -> Result<()> {
    let list = packages.join(" ");
    if !has_program("apt-get") {
        bail!("some packages are missing and this is no Debian; install what corresponds to: {list}");
    }
    let purpose = format!("`apt-get install {list}`");
    // A package source that fails here may not be needed.
    let _ = step::command("apt-get update", "", as_root("apt-get", &purpose)?.arg("update"));
    let mut command = as_root("env", &purpose)?;
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends"]);
    let hint = "Without a network, or a mirror that works, install these packages in another way and try again.";
    step::command(&format!("apt-get install {list}"), hint, command.args(packages))
}

/// The version of a package that apt would install, such as `15+248+deb12u1`.
pub fn candidate(package: &str) -> Option<String> {
    let output = Command::new("apt-cache").args(["policy", package]).env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}
