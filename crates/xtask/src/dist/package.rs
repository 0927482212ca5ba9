use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step;

const MAINTAINER: &str = "lantern-index developers <https://github.com/lantern-index/lantern-index>";

/// A Debian package in the making: its files below a folder, and its metadata.
pub struct Package {
    name: String,
    /// Dependencies other than linked libraries.
    depends: Vec<String>,
    fields: String,
    tree: Tree,
    linked: Vec<PathBuf>,
}

/// Files below a folder.
pub struct Tree(PathBuf);

impl Tree {
    /// An empty folder.
    pub fn new(root: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(root);
        fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self(root.to_owned()))
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, to: &str, content: &[u8], mode: u32) -> Result<PathBuf> {
        let path = self.0.join(to);
        let context = || format!("cannot write {}", path.display());
        fs::create_dir_all(path.parent().context("no folder")?).with_context(context)?;
        // Whatever the umask: the same packages everywhere, and folders that every account can read.
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.0)) {
            fs::set_permissions(folder, Permissions::from_mode(0o755)).with_context(context)?;
        }
        fs::write(&path, content).with_context(context)?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).with_context(context)?;
        Ok(path)
    }

    pub fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(to, &content, mode)
    }

    /// Adds a program or library, without its debug information.
    pub fn linked(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf> {
        let path = self.copy(from, to, mode)?;
        step::output(Command::new("strip").args(["--strip-unneeded", "--remove-section=.comment"]).arg(&path))?;
        Ok(path)
    }
}

impl Package {
    /// An empty package. `fields` are further lines of its control file, the description last.
    pub fn new(name: &str, depends: &[&str], fields: &str) -> Result<Self> {
        let root = step::work_dir()?.join("packages").join(name);
        let tree = Tree::new(&root)?;
        let depends = depends.iter().map(|&depends| depends.to_owned()).collect();
        Ok(Self { name: name.to_owned(), depends, fields: fields.to_owned(), tree, linked: Vec::new() })
    }

    pub fn file(&self, to: &str, content: &[u8], mode: u32) -> Result<PathBuf> {
        self.tree.file(to, content, mode)
    }

    pub fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf> {
        self.tree.copy(from, to, mode)
    }

    /// Adds a file as `to.gz`.
    pub fn gzipped(&self, to: &str, content: &[u8]) -> Result<()> {
        let path = self.file(to, content, 0o644)?;
        step::output(Command::new("gzip").args(["-9n", "--force"]).arg(path)).map(drop)
    }

    /// Adds a program or library, without debug information, and depends on its linked libraries.
    pub fn linked(&mut self, from: &Path, to: &str, mode: u32) -> Result<()> {
        self.linked.push(self.tree.linked(from, to, mode)?);
        Ok(())
    }

    /// Adds the documents that every package must have.
    pub fn documents(&self) -> Result<()> {
        let folder = format!("usr/share/doc/{}", self.name);
        self.copy(&super::source("deploy/debian/copyright"), &format!("{folder}/copyright"), 0o644)?;
        let changes = fs::read(super::source("CHANGELOG.md")).context("cannot read CHANGELOG.md")?;
        self.gzipped(&format!("{folder}/changelog"), &changes)
    }

    /// Writes the package into `out`; returns its path.
    pub fn build(self, out: &Path) -> Result<PathBuf> {
        self.build_as(env!("CARGO_PKG_VERSION"), out)
    }

    /// Like [`Self::build`], with another version's number.
    pub fn build_as(self, version: &str, out: &Path) -> Result<PathBuf> {
        let architecture = architecture()?;
        let depends = self.all_depends()?.join(", ");
        let control = format!(
            "Package: {}\nVersion: {version}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nSection: database\nPriority: optional\n\
             Homepage: https://github.com/lantern-index/lantern-index\nInstalled-Size: {}\nDepends: {depends}\n{}\n",
            self.name,
            architecture,
            kibibytes(self.tree.root())?,
            self.fields.trim_end(),
        );
        self.file("DEBIAN/control", control.as_bytes(), 0o644)?;
        let path = out.join(format!("{}_{version}_{architecture}.deb", self.name));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--build", "-Zxz"]).env("SOURCE_DATE_EPOCH", seconds()?.to_string());
        step::output(build.arg(self.tree.root()).arg(&path))?;
        Ok(path)
    }

    fn all_depends(&self) -> Result<Vec<String>> {
        // The tool expects a source package.
        let fake = self.tree.root().with_extension("source");
        fs::create_dir_all(fake.join("debian"))?;
        fs::write(fake.join("debian/control"), format!("Source: x\n\nPackage: {}\nArchitecture: any\n", self.name))?;
        let mut command = Command::new("dpkg-shlibdeps");
        let output = step::output(
            command.current_dir(&fake).arg("-O").args(self.linked.iter().map(|path| format!("-e{}", path.display()))),
        )?;
        let line = output.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
        let linked = line.context("dpkg-shlibdeps does not say what the programs are linked with")?;
        Ok(linked.split(", ").map(str::to_owned).chain(self.depends.iter().cloned()).collect())
    }
}

/// The modification time of files in packages: the commit's, so that the same sources give the same bytes.
pub fn seconds() -> Result<u64> {
    if let Some(seconds) = env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok()) {
        return Ok(seconds);
    }
    let text = step::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(harness::root()))
        .context("SOURCE_DATE_EPOCH is not set, and git does not tell when the sources were committed")?;
    text.trim().parse().context("git tells no time")
}

/// Debian's name of this machine's architecture.
pub fn architecture() -> Result<String> {
    Ok(step::output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// The size of files in KiB, each rounded up, with one for each folder: the same on every file system.
fn kibibytes(root: &Path) -> Result<u64> {
    let mut sum = 1;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { kibibytes(&entry.path())? } else { metadata.len().div_ceil(1024) };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::{Tree, kibibytes};

    #[test]
    fn folders_have_the_same_mode_and_size_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::new(&dir.path().join("tree")).unwrap();
        fs::set_permissions(tree.root(), fs::Permissions::from_mode(0o700)).unwrap();
        tree.file("usr/share/text", &[b'x'; 1025], 0o644).unwrap();
        for folder in ["", "usr", "usr/share"] {
            let mode = fs::metadata(tree.root().join(folder)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o755, "{folder}");
        }
        assert_eq!(kibibytes(tree.root()).unwrap(), 3 + 2);
    }
}
