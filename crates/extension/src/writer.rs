//! Puts pages into the index, checked and logged while they arrive.

use pages::{IncomingError, IncomingSpec, IncomingVerifier, PAGE_SIZE, RowDigest};
use pgrx::prelude::*;

use crate::failure::Failure;
use crate::progress;

#[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16"))]
#[path = "writer/extend.rs"]
mod file;
#[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16")))]
#[path = "writer/bulk.rs"]
mod file;

use file::IndexFile;

const _: () = assert!(pg_sys::BLCKSZ as usize == PAGE_SIZE, "pgvector's pages are made for blocks of 8 KiB");

/// An index that is being filled, block by block.
pub(crate) struct Writer {
    file: IndexFile,
    verifier: IncomingVerifier,
    blocks: u32,
    written: u32,
}

impl Writer {
    /// # Safety
    /// `index` must be an open, empty index that nobody else uses, until the end of the transaction.
    pub(crate) unsafe fn new(index: pg_sys::Relation, spec: IncomingSpec, key: [u64; 4]) -> Result<Self, Failure> {
        let verifier = IncomingVerifier::new(spec, key).map_err(refused)?;
        // SAFETY: as promised by the caller.
        let file = unsafe { IndexFile::new(index) };
        Ok(Self { file, verifier, blocks: spec.blocks, written: 0 })
    }

    /// Checks and stores pages that follow those stored before.
    pub(crate) fn write(&mut self, first_block: u32, bytes: &[u8]) -> Result<(), Failure> {
        let (pages, rest) = bytes.as_chunks::<PAGE_SIZE>();
        if pages.is_empty() || !rest.is_empty() {
            return Err(Failure::protocol("Pages that are not whole."));
        }
        for (block, page) in (first_block..).zip(pages) {
            self.verifier.page(block, page).map_err(refused)?;
            self.file.append(block, page);
            self.written += 1;
        }
        progress::blocks(self.written, self.blocks);
        pgrx::check_for_interrupts!();
        Ok(())
    }

    /// The index is complete: are all rows in it that were sent, and no other?
    pub(crate) fn finish(self, sent: RowDigest) -> Result<(), Failure> {
        self.verifier.finish(sent).map_err(refused)?;
        self.file.finish();
        Ok(())
    }
}

fn refused(error: IncomingError) -> Failure {
    Failure::invalid(format!("{error}."))
}
