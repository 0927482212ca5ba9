//! Minimal root file systems, made once by mmdebstrap.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::arguments::CleanSystem;
use crate::step::{self, output};
use crate::{apt, apt_sources, system};

/// Dependencies of the packages: the check itself uses no network.
const INCLUDED: &str = "adduser,init-system-helpers,libstdc++6";

/// Releases of Debian and Ubuntu, their PostgreSQL, and whether their pgvector is recent enough.
const KNOWN: [(&str, u32, bool); 5] =
    [("bookworm", 15, false), ("trixie", 17, true), ("forky", 18, true), ("jammy", 14, false), ("noble", 16, false)];

/// The release on which packages are tried, too, if this machine's is Debian 12.
const NEWER: &str = "trixie";

const UBUNTU_KEYS: &str = "/usr/share/keyrings/ubuntu-archive-keyring.gpg";

/// A release to try packages on.
#[derive(Debug)]
pub struct Release {
    system: CleanSystem,
    /// Its PostgreSQL, if that is known.
    pub major: Option<u32>,
}

impl Release {
    /// The releases that are asked for, or this machine's and a newer one.
    pub fn all(on: &[CleanSystem]) -> Result<Vec<Self>> {
        let mut systems = on.to_vec();
        if systems.is_empty() {
            let own = own_codename()?;
            let newer = (own == "bookworm").then(|| NEWER.to_owned());
            let named = [own].into_iter().chain(newer);
            systems = named.map(|codename| CleanSystem { codename, mirror: None }).collect();
        }
        Ok(systems.into_iter().map(Self::of).collect())
    }

    fn of(system: CleanSystem) -> Self {
        let known = KNOWN.iter().find(|(codename, ..)| *codename == system.codename);
        Self { major: known.map(|(_, major, _)| *major), system }
    }

    pub fn name(&self) -> String {
        format!("a clean system of {}", self.system.codename)
    }

    /// Whether indexes can be built there.
    pub fn has_pgvector(&self) -> bool {
        KNOWN.iter().any(|(codename, _, recent)| *codename == self.system.codename && *recent)
    }

    fn packages(&self) -> String {
        let mut packages = INCLUDED.to_owned();
        if let Some(major) = self.major {
            packages += &format!(",postgresql-{major}");
            if self.has_pgvector() {
                packages += &format!(",postgresql-{major}-pgvector");
            }
        }
        packages
    }

    /// A line of apt's sources for it; None where mmdebstrap chooses.
    fn source(&self) -> Result<Option<String>> {
        let codename = &self.system.codename;
        if let Some(mirror) = &self.system.mirror {
            if !mirror.contains("ubuntu") {
                return Ok(Some(format!("deb {mirror} {codename} main")));
            }
            ensure!(
                Path::new(UBUNTU_KEYS).is_file(),
                "{UBUNTU_KEYS} is missing; Debian has it in ubuntu-keyring, from 13 on"
            );
            return Ok(Some(format!("deb [signed-by={UBUNTU_KEYS}] {mirror} {codename} main universe")));
        }
        // The mirror that this machine uses.
        let archives = apt_sources::archives(Path::new("/etc/apt"), &own_codename()?);
        let archive = archives.first().filter(|archive| archive.uri.contains("debian"));
        Ok(archive.map(|archive| {
            let keys = archive.signed_by.as_ref().filter(|keys| keys.starts_with('/'));
            let keys = keys.map_or(String::new(), |keys| format!("[signed-by={keys}] "));
            format!("deb {keys}{} {codename} main", archive.uri)
        }))
    }
}

/// An archive of a clean system.
pub fn archive(release: &Release) -> Result<PathBuf> {
    let codename = &release.system.codename;
    let major = release.major.map_or(String::new(), |major| format!("-{major}"));
    let archive = step::work_dir()?.join(format!("root-{codename}{major}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    if !apt::has_program("mmdebstrap") {
        apt::install(&["mmdebstrap".to_owned()])?;
    }
    let half = archive.with_extension("tar.part");
    let mut command = as_root("mmdebstrap")?;
    let include = format!("--include={}", release.packages());
    command.args(["--variant=minbase", "--format=tar", &include, codename]).arg(&half).args(release.source()?);
    step::command(&format!("making {}", release.name()), "It needs a mirror of the system.", &mut command)?;
    fs::rename(&half, &archive).context("cannot keep the clean system")?;
    Ok(archive)
}

/// A root file system that is removed when dropped.
pub struct System {
    root: PathBuf,
}

impl System {
    pub fn unpack(archive: &Path) -> Result<Self> {
        let root = step::work_dir()?.join(format!("root-{}", process::id()));
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        let system = Self { root };
        output(
            as_root("tar")?.args(["--extract", "--numeric-owner", "--file"]).arg(archive).arg("-C").arg(&system.root),
        )?;
        Ok(system)
    }

    /// Where a path of the system is on this machine.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    /// Runs a script in it, as its root; what it prints.
    pub fn shell(&self, script: &str) -> Result<String> {
        output(&mut self.command(script, &[]))
    }

    /// A command that runs a script in it, with further variables.
    pub fn command(&self, script: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = as_root("chroot").unwrap_or_else(|_| Command::new("chroot"));
        command.arg(&self.root).args(["/usr/bin/env", "LC_ALL=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(["/bin/sh", "-e", "-c", script]).stdin(Stdio::null());
        command
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = as_root("rm").and_then(|mut rm| output(rm.args(["-rf", "--one-file-system"]).arg(&self.root)));
    }
}

pub fn as_root(program: &str) -> Result<Command> {
    apt::as_root(program, "installing packages on a clean system")
}

fn own_codename() -> Result<String> {
    let codename = system::System::own().codename().map(str::to_owned);
    codename.context("/etc/os-release does not name a release of Debian")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_their_packages_and_mirrors() {
        let release = |text: &str| Release::of(text.parse().unwrap());
        assert_eq!(release("bookworm").packages(), format!("{INCLUDED},postgresql-15"));
        assert!(release("trixie").packages().ends_with(",postgresql-17,postgresql-17-pgvector"));
        assert_eq!(release("plucky").packages(), INCLUDED);
        let debian = release("trixie=http://mirror.example/debian").source().unwrap().unwrap();
        assert_eq!(debian, "deb http://mirror.example/debian trixie main");
    }
}
