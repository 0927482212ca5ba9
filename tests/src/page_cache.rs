use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The files of a relation's main fork, whose pages can be evicted from the system's page cache.
pub struct CachedFiles(Vec<fs::File>);

impl CachedFiles {
    /// Opens the files; `file` comes from [`crate::Cluster::relation_file`].
    pub fn of(file: &Path) -> Result<Self> {
        let name = file.file_name().context("no file name")?.to_string_lossy().into_owned();
        let segment = |path: &PathBuf| {
            let other = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            other == name || other.starts_with(&format!("{name}."))
        };
        let all = fs::read_dir(file.parent().context("no directory")?)?.flatten().map(|entry| entry.path());
        let open = |path: PathBuf| fs::File::open(&path).with_context(|| format!("cannot open {}", path.display()));
        Ok(Self(all.filter(segment).map(open).collect::<Result<_>>()?))
    }

    /// Writes dirty pages to disk, so that [`Self::forget`] can evict everything.
    pub fn write(&self) -> Result<()> {
        self.0.iter().try_for_each(|file| file.sync_all().context("cannot write a file to disk"))
    }

    /// Evicts the files from the page cache: the next read goes to the disk.
    pub fn forget(&self) -> Result<()> {
        self.0.iter().try_for_each(evict)
    }
}

#[cfg(target_os = "linux")]
fn evict(file: &fs::File) -> Result<()> {
    use rustix::fs::{Advice, fadvise, fstatfs};
    // Of tmpfs, linux/magic.h. fadvise succeeds there, and evicts nothing.
    let in_memory = fstatfs(file).context("fstatfs failed")?.f_type == 0x0102_1994;
    anyhow::ensure!(!in_memory, "the files are in memory (tmpfs), not on a disk; TMPDIR names another directory");
    fadvise(file, 0, None, Advice::DontNeed).context("fadvise failed")
}

/// `cargo xtask` compiles this crate on other systems too, to say there that it needs Linux.
#[cfg(not(target_os = "linux"))]
fn evict(_: &fs::File) -> Result<()> {
    anyhow::bail!("files are evicted from the page cache on Linux only")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::CachedFiles;
    use crate::Scratch;

    #[test]
    fn segments_belong_to_a_relation_and_forks_do_not() {
        let scratch = Scratch::new("page-cache-test", 0o700).unwrap();
        for name in ["16384", "16384.1", "16384_vm", "163845"] {
            std::fs::write(scratch.path().join(name), name).unwrap();
        }
        let files = CachedFiles::of(&scratch.path().join("16384")).unwrap();
        assert_eq!(files.0.len(), 2);
        files.write().unwrap();
    }

    #[test]
    fn files_in_memory_cannot_be_evicted() {
        // On a disk, in contrast to the temporary directory of some systems.
        CachedFiles::of(Path::new("/etc/passwd")).unwrap().forget().unwrap();
        let path = PathBuf::from(format!("/dev/shm/lantern-index-page-cache-{}", std::process::id()));
        std::fs::write(&path, "1").unwrap();
        let forgotten = CachedFiles::of(&path).unwrap().forget();
        std::fs::remove_file(&path).unwrap();
        assert!(forgotten.unwrap_err().to_string().contains("tmpfs"));
    }
}
