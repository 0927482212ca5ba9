//! Debian packages of another release than this machine's, by an apt with its lists and files in a private folder. The machine's
//! configuration stays unchanged; from it come only the archive and its signing key.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::system::System;
use crate::{apt, apt_sources, step};

/// What to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Binaries,
    /// For another architecture, under Debian's name.
    BinariesFor(&'static str),
    Sources,
}

/// An apt for one release.
pub struct OtherApt<'a> {
    dir: &'a Path,
    suite: &'a str,
}

impl<'a> OtherApt<'a> {
    /// Tries `work` with this machine's archives until it succeeds. Files go to `dir`, whose content is deleted first.
    pub fn with<T>(suite: &'a str, kind: Kind, dir: &'a Path, work: impl Fn(&Self) -> Result<T>) -> Result<T> {
        for program in ["apt-get", "dpkg-deb"] {
            ensure!(apt::has_program(program), "packages of Debian {suite} cannot be used: there is no {program}");
        }
        let system = System::own();
        ensure!(
            system.is_debian(),
            "packages of Debian {suite} come from the archive of this machine, which is no Debian"
        );
        let codename = system.codename().unwrap_or("sid");
        let archives = apt_sources::archives(Path::new("/etc/apt"), codename);
        ensure!(!archives.is_empty(), "apt's sources name no archive of Debian {codename}");
        let mut result = Err(anyhow::anyhow!("no archive"));
        for archive in &archives {
            result = Self::prepare(dir, &archive.stanza(suite, kind), kind).and_then(|()| {
                let other = Self { dir, suite };
                other.get(&["update"])?;
                work(&other)
            });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn prepare(dir: &Path, stanza: &str, kind: Kind) -> Result<()> {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot delete {}", dir.display()))?;
        }
        for part in ["lists/partial", "cache/archives/partial", "none", "files"] {
            fs::create_dir_all(dir.join(part)).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        fs::write(dir.join("other.sources"), stanza)?;
        // An empty status file: no package is installed.
        fs::write(dir.join("status"), "")?;
        fs::write(dir.join("apt.conf"), configuration(dir.to_str().context("the path is not UTF-8")?, kind))?;
        Ok(())
    }

    /// Runs `apt-get` in [`Self::files`].
    pub fn get(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("APT_CONFIG", self.dir.join("apt.conf")).current_dir(self.files());
        let what = format!("Debian {}: apt-get {}", self.suite, arguments.join(" "));
        step::command(&what, "The archive comes from the sources in /etc/apt; is it reachable?", &mut command)
    }

    /// The folder for fetched files other than [`Self::packages`].
    pub fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// The packages that `apt-get install --download-only` fetched.
    pub fn packages(&self) -> Result<Vec<PathBuf>> {
        let files = fs::read_dir(self.dir.join("cache/archives"))?.flatten().map(|entry| entry.path());
        Ok(files.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).collect())
    }
}

/// apt's configuration: private folders and no hooks. Its network settings are the machine's.
fn configuration(dir: &str, kind: Kind) -> String {
    let architecture = match kind {
        Kind::BinariesFor(name) => format!("APT::Architecture \"{name}\";\nAPT::Architectures {{ \"{name}\"; }};\n"),
        Kind::Binaries | Kind::Sources => String::new(),
    };
    format!(
        "{architecture}Dir::Etc::SourceList \"{dir}/other.sources\";\nDir::Etc::SourceParts \"{dir}/none\";\n\
         Dir::Etc::Preferences \"{dir}/none/preferences\";\nDir::Etc::PreferencesParts \"{dir}/none\";\n\
         Dir::State::Lists \"{dir}/lists\";\nDir::State::Status \"{dir}/status\";\nDir::Cache \"{dir}/cache\";\n\
         APT::Sandbox::User \"\";\nAPT::Default-Release \"\";\nAPT::Keep-Downloaded-Packages \"true\";\n\
         #clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n\
         #clear DPkg::Pre-Invoke;\n#clear DPkg::Post-Invoke;\n#clear DPkg::Pre-Install-Pkgs;\n"
    )
}
