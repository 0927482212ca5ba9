//! Up to PostgreSQL 16: as its own index builds write new files, past shared buffers and logged many pages at a time.

use pages::{PAGE_SIZE, PageBytes};
use pgrx::prelude::*;

/// Pages logged and written at a time: as many as a record of the log can have (`XLR_MAX_BLOCK_ID`).
const BATCH: usize = 32;

/// Direct I/O wants its buffers so (`PG_IO_ALIGN_SIZE`).
#[repr(C, align(4096))]
struct Batch([PageBytes; BATCH]);

/// The file of an index.
pub(super) struct IndexFile {
    index: pg_sys::Relation,
    logged: bool,
    /// Nobody needs it after a crash.
    temporary: bool,
    batch: Box<Batch>,
    /// Pages in `batch`, and the block of the first of them.
    waiting: usize,
    first: u32,
    /// Where recovery would have begun when this did.
    redo: pg_sys::XLogRecPtr,
}

impl IndexFile {
    /// # Safety
    /// `index` must be an open, empty index that nobody else uses, until the end of the transaction.
    pub(super) unsafe fn new(index: pg_sys::Relation) -> Self {
        // SAFETY: as promised by the caller.
        let (logged, persistence, redo) =
            unsafe { (needs_wal(index), (*(*index).rd_rel).relpersistence, pg_sys::GetRedoRecPtr()) };
        let temporary = persistence == pg_sys::RELPERSISTENCE_TEMP as std::ffi::c_char;
        let batch = Box::new(Batch([[0; PAGE_SIZE]; BATCH]));
        Self { index, logged, temporary, batch, waiting: 0, first: 0, redo }
    }

    /// Appends a page, which must become `block`.
    pub(super) fn append(&mut self, block: u32, page: &PageBytes) {
        if self.waiting == BATCH {
            self.flush(false);
        }
        if self.waiting == 0 {
            self.first = block;
        }
        self.batch.0[self.waiting] = *page;
        self.waiting += 1;
    }

    /// All pages are there. An index that fails is never finished: its file goes with the transaction.
    pub(super) fn finish(mut self) {
        self.flush(true);
        // SAFETY: the index is open. A checkpoint since the beginning may have come between a page's log and the page: recovery would not
        // read that log, and nobody has seen to it that the page is on the disk. Any later one was told of the file before
        // this is asked (as `smgr_bulk_finish` of later releases has it).
        unsafe {
            if pg_sys::GetRedoRecPtr() != self.redo {
                pg_sys::smgrimmedsync(pg_sys::RelationGetSmgr(self.index), pg_sys::ForkNumber::MAIN_FORKNUM);
            }
        }
    }

    /// Logs and writes what waits. The checkpointer is told of each segment of the file with its last page.
    fn flush(&mut self, last: bool) {
        let pages = &mut self.batch.0[..self.waiting];
        let end = self.first + pages.len() as u32;
        // SAFETY: the index is open; pages are whole and nobody else's.
        unsafe {
            if self.logged {
                log(self.index, self.first, pages);
            }
            let file = pg_sys::RelationGetSmgr(self.index);
            for (block, page) in (self.first..).zip(pages) {
                let completes = (last && block + 1 == end) || (block + 1) % pg_sys::RELSEG_SIZE == 0;
                let page = page.as_mut_ptr();
                pg_sys::PageSetChecksumInplace(page.cast(), block);
                let main = pg_sys::ForkNumber::MAIN_FORKNUM;
                pg_sys::smgrextend(file, main, block, page.cast(), self.temporary || !completes);
            }
        }
        self.waiting = 0;
    }
}

/// Puts new pages into the write-ahead log, and their place there into the pages.
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
            let mut blocks: [u32; BATCH] = std::array::from_fn(|at| first + at as u32);
            let mut starts: Vec<_> = pages.iter_mut().map(|page| page.as_mut_ptr().cast()).collect();
            let count = starts.len() as i32;
            pg_sys::log_newpages(file, main, count, blocks.as_mut_ptr(), starts.as_mut_ptr(), true);
        }
    }
}

/// Whether changes of the index go to the write-ahead log: PostgreSQL's `RelationNeedsWAL`.
unsafe fn needs_wal(index: pg_sys::Relation) -> bool {
    // SAFETY: the relation is open.
    unsafe {
        let permanent = (*(*index).rd_rel).relpersistence == pg_sys::RELPERSISTENCE_PERMANENT as std::ffi::c_char;
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        let new_file = (*index).rd_firstRelfilenodeSubid;
        #[cfg(feature = "pg16")]
        let new_file = (*index).rd_firstRelfilelocatorSubid;
        const NONE: pg_sys::SubTransactionId = 0;
        let in_this_transaction = (*index).rd_createSubid != NONE || new_file != NONE;
        permanent && (pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32 || !in_this_transaction)
    }
}
