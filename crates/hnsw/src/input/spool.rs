//! Values in a file that has no name, for builds whose values do not fit into memory.
#![allow(unsafe_code)] // files are mapped

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::BuildError;

/// Bytes by which the file grows and is mapped: large, as a process can have only some ten thousand mappings.
const SEGMENT: u64 = 32 << 20;

/// Where a build stores its values: in memory, and after [`Storage::spool`] in a file. Clones share the storage.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    dir: Option<PathBuf>,
    spooling: Arc<AtomicBool>,
}

impl Storage {
    /// Memory, with a directory for a file if one is needed.
    #[must_use]
    pub fn with_spool(dir: PathBuf) -> Self {
        Self { dir: Some(dir), spooling: Arc::default() }
    }

    /// Creates the file in `dir` and removes it again.
    ///
    /// # Errors
    /// The system's error if it cannot be created.
    pub fn try_dir(dir: &Path) -> io::Result<()> {
        // The next line's errors would name a temporary file.
        if !dir.metadata()?.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        tempfile::tempfile_in(dir).map(drop)
    }

    /// Switches new values to the file, and returns `true`, if there is a directory for it.
    pub fn spool(&self) -> bool {
        self.spooling.store(self.dir.is_some(), Ordering::Relaxed);
        self.dir.is_some()
    }

    /// Where the next values go: a directory, or memory for `None`.
    pub(crate) fn next(&self) -> Option<&Path> {
        self.dir.as_deref().filter(|_| self.spooling.load(Ordering::Relaxed))
    }
}

/// A file of values that no other process can open: made without a name or unlinked at once, and gone with the process.
#[derive(Default)]
pub(crate) struct Spool {
    state: Mutex<Option<State>>,
}

struct State {
    file: File,
    segment: Arc<Mmap>,
    /// Where the segment begins in the file, and how much of it is used.
    start: u64,
    used: usize,
}

/// Bytes in the file, which no longer change.
pub(crate) struct Piece {
    segment: Arc<Mmap>,
    start: usize,
    len: usize,
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.segment[self.start..self.start + self.len]
    }
}

impl Spool {
    /// Writes bytes to the file in `dir`, which is made by the first call.
    pub(crate) fn write(&self, dir: &Path, bytes: &[u8]) -> Result<Piece, BuildError> {
        self.append(dir, bytes).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => BuildError::SpoolFull(dir.to_owned()),
            _ => BuildError::Spool { dir: dir.to_owned(), problem: error.to_string() },
        })
    }

    fn append(&self, dir: &Path, bytes: &[u8]) -> io::Result<Piece> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match &mut *guard {
            Some(state) => state,
            none => none.insert(State::new(dir, bytes.len())?),
        };
        if state.segment.len() - state.used < bytes.len() {
            state.extend(bytes.len())?;
        }
        // Not through the mapping, where a full disk would raise SIGBUS and end the daemon.
        state.file.write_all_at(bytes, state.start + state.used as u64)?;
        let piece = Piece { segment: state.segment.clone(), start: state.used, len: bytes.len() };
        state.used += bytes.len();
        Ok(piece)
    }
}

impl State {
    fn new(dir: &Path, least: usize) -> io::Result<Self> {
        // Mode 0600, without a name where the file system can do that, else unlinked before this returns.
        let file = tempfile::tempfile_in(dir)?;
        let segment = Arc::new(map(&file, 0, least)?);
        Ok(Self { file, segment, start: 0, used: 0 })
    }

    fn extend(&mut self, least: usize) -> io::Result<()> {
        let start = self.start + self.segment.len() as u64;
        self.segment = Arc::new(map(&self.file, start, least)?);
        (self.start, self.used) = (start, 0);
        Ok(())
    }
}

/// Makes the file longer by a segment and maps it.
fn map(file: &File, start: u64, least: usize) -> io::Result<Mmap> {
    let len = (least as u64).next_multiple_of(SEGMENT);
    match fallocate(file, FallocateFlags::empty(), start, len) {
        // Not all file systems can reserve space; then it is allocated by writing.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(start + len)?,
        result => result?,
    }
    let len = usize::try_from(len).map_err(io::Error::other)?;
    // SAFETY: no other process has the file, which has no name. It is never truncated, so all of the mapping stays valid. Its bytes
    // are read only through a `Piece`, which is made after they were written, and they are not written again.
    unsafe { MmapOptions::new().offset(start).len(len).map(file) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{SEGMENT, Spool, Storage};
    use crate::BuildError;

    #[test]
    fn what_was_written_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::default();
        let large = vec![7; SEGMENT as usize - 3];
        let texts: [&[u8]; 4] = [b"one", b"", &large, b"three"];
        let pieces: Vec<_> = texts.iter().map(|text| spool.write(dir.path(), text).unwrap()).collect();
        for (text, piece) in texts.iter().zip(&pieces) {
            assert!(piece.bytes() == *text);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has a name");
        drop(spool);
        assert_eq!(pieces[3].bytes(), b"three");
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named() {
        let error = Spool::default().write(Path::new("/nonexistent"), b"x").err().unwrap();
        assert!(matches!(&error, BuildError::Spool { .. }) && error.to_string().contains("/nonexistent"), "{error}");
    }

    #[test]
    fn trying_a_directory_leaves_no_file_and_names_the_problem() {
        let dir = tempfile::tempdir().unwrap();
        Storage::try_dir(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        // Not even root can create a file in /proc.
        for (bad, text) in
            [(&*dir.path().join("absent"), "No such file"), (&file, "Not a directory"), (Path::new("/proc"), "")]
        {
            let error = Storage::try_dir(bad).unwrap_err().to_string();
            assert!(error.contains(text), "{}: {error}", bad.display());
        }
    }

    #[test]
    fn values_are_spooled_only_with_a_directory() {
        assert!(!Storage::default().spool());
        let storage = Storage::with_spool("/x".into());
        assert_eq!(storage.clone().next(), None);
        assert!(storage.clone().spool());
        assert_eq!(storage.next(), Some(Path::new("/x")));
    }
}
