//! Writes the index up to PostgreSQL 16 as its own index builds write new files: many pages per WAL record (one on PostgreSQL 13), bypassing
//! shared buffers.

use pages::PageBytes;
use pgrx::prelude::*;

use super::wal::needs_wal;

/// The file of an index.
pub(super) struct IndexFile {
    index: pg_sys::Relation,
    logged: bool,
    /// Whether the index is temporary, so that it need not survive a crash.
    temporary: bool,
    /// Blocks that it will have.
    blocks: u32,
    /// The redo pointer when writing began.
    redo: pg_sys::XLogRecPtr,
}

impl IndexFile {
    /// # Safety
    /// `index` must be an open, empty index that nobody else uses, until the end of the transaction.
    pub(super) unsafe fn new(index: pg_sys::Relation, blocks: u32) -> Self {
        // SAFETY: as promised by the caller.
        let (logged, persistence, redo) =
            unsafe { (needs_wal(index), (*(*index).rd_rel).relpersistence, pg_sys::GetRedoRecPtr()) };
        let temporary = persistence == pg_sys::RELPERSISTENCE_TEMP as std::ffi::c_char;
        Self { index, logged, temporary, blocks, redo }
    }

    /// Logs and appends pages, the first of which must become block `first`; at most as many as a WAL record can have. The last page
    /// of each segment of the file registers the segment with the checkpointer.
    pub(super) fn append(&mut self, first: u32, pages: &mut [PageBytes]) {
        // SAFETY: the index is open; pages are whole and nobody else's.
        unsafe {
            if self.logged {
                log(self.index, first, pages);
            }
            let file = pg_sys::RelationGetSmgr(self.index);
            for (block, page) in (first..).zip(pages) {
                let completes = block + 1 == self.blocks || (block + 1) % pg_sys::RELSEG_SIZE == 0;
                let page = page.as_mut_ptr();
                pg_sys::PageSetChecksumInplace(page.cast(), block);
                let main = pg_sys::ForkNumber::MAIN_FORKNUM;
                pg_sys::smgrextend(file, main, block, page.cast(), self.temporary || !completes);
            }
        }
    }

    /// Called after the last page. The file of an index that fails is removed with the transaction.
    pub(super) fn finish(self) {
        // SAFETY: the index is open. A checkpoint since the beginning may have come between a page's WAL record and its write:
        // recovery would not replay the record, and the page may not be on disk. Later checkpoints sync the file, as it was
        // registered before this check (as in `smgr_bulk_finish` of later releases).
        unsafe {
            if pg_sys::GetRedoRecPtr() != self.redo {
                pg_sys::smgrimmedsync(pg_sys::RelationGetSmgr(self.index), pg_sys::ForkNumber::MAIN_FORKNUM);
            }
        }
    }
}

/// Logs new pages, and sets their LSN.
///
/// # Safety
/// The relation must be open.
unsafe fn log(index: pg_sys::Relation, first: u32, pages: &mut [PageBytes]) {
    let main = pg_sys::ForkNumber::MAIN_FORKNUM;
    // SAFETY: the relation is open, and has a place for its file.
    unsafe {
        #[cfg(not(feature = "pg16"))]
        let file = &raw mut (*index).rd_node;
        #[cfg(feature = "pg16")]
        let file = &raw mut (*index).rd_locator;
        #[cfg(feature = "pg13")]
        for (block, page) in (first..).zip(pages) {
            pg_sys::log_newpage(file, main, block, page.as_mut_ptr().cast(), true);
        }
        #[cfg(not(feature = "pg13"))]
        {
            let mut blocks: Vec<u32> = (first..).take(pages.len()).collect();
            let mut starts: Vec<_> = pages.iter_mut().map(|page| page.as_mut_ptr().cast()).collect();
            let count = starts.len() as i32;
            pg_sys::log_newpages(file, main, count, blocks.as_mut_ptr(), starts.as_mut_ptr(), true);
        }
    }
}
