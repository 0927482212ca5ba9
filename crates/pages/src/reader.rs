use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::{NO_BLOCK, PAGE_SIZE, PageBytes, SEGMENT_BLOCKS};

/// A source of pages.
pub trait PageSource {
    /// The number of blocks.
    fn blocks(&self) -> u32;

    /// The bytes of a block: where they are in memory, else read into `buffer`.
    ///
    /// # Errors
    /// If there is no such block, or it cannot be read.
    fn read<'a>(&'a mut self, block: u32, buffer: &'a mut PageBytes) -> io::Result<&'a PageBytes>;

    /// Called every few milliseconds by work that reads no pages, to allow cancellation: it may panic to end the work.
    fn pause(&mut self) {}
}

/// Pages in memory.
impl PageSource for &[PageBytes] {
    fn blocks(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(NO_BLOCK)
    }

    fn read<'a>(&'a mut self, block: u32, _: &'a mut PageBytes) -> io::Result<&'a PageBytes> {
        Ok(self.get(block as usize).ok_or(io::ErrorKind::UnexpectedEof)?)
    }
}

/// Why a relation file cannot be read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A file cannot be opened.
    #[error("cannot open {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not a whole number of pages, or is larger than a segment.
    #[error("{} has {len} bytes, which is not a relation file of 8 kB pages in 1 GiB segments", path.display())]
    Len {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
}

/// A relation file and its segments `FILE.1`, `FILE.2`, …, as PostgreSQL keeps them.
#[derive(Debug)]
pub struct FileSource {
    segments: Vec<File>,
    blocks: u32,
}

impl FileSource {
    /// Opens a file and the segments that follow it.
    ///
    /// # Errors
    /// If a file cannot be opened, or its length is not that of a segment.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let mut source = Self { segments: Vec::new(), blocks: 0 };
        let mut next = path.to_path_buf();
        loop {
            let io = |source| OpenError::Io { path: next.clone(), source };
            let file = match File::open(&next) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !source.segments.is_empty() => break,
                file => file.map_err(io)?,
            };
            let len = file.metadata().map_err(io)?.len();
            let blocks = len / PAGE_SIZE as u64;
            let total = u64::from(source.blocks) + blocks;
            if len % PAGE_SIZE as u64 != 0 || blocks > SEGMENT_BLOCKS.into() || total > NO_BLOCK.into() {
                return Err(OpenError::Len { path: next, len });
            }
            source.blocks = total as u32;
            source.segments.push(file);
            if blocks < SEGMENT_BLOCKS.into() {
                break;
            }
            let mut name = OsString::from(path);
            name.push(format!(".{}", source.segments.len()));
            next = name.into();
        }
        Ok(source)
    }
}

impl PageSource for FileSource {
    fn blocks(&self) -> u32 {
        self.blocks
    }

    fn read<'a>(&'a mut self, block: u32, buffer: &'a mut PageBytes) -> io::Result<&'a PageBytes> {
        let segment = self.segments.get_mut((block / SEGMENT_BLOCKS) as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
        segment.seek(SeekFrom::Start(u64::from(block % SEGMENT_BLOCKS) * PAGE_SIZE as u64))?;
        segment.read_exact(buffer)?;
        Ok(buffer)
    }
}
