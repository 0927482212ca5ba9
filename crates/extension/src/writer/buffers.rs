//! Up to PostgreSQL 16: through shared buffers, and logged page by page.

use pages::{PAGE_SIZE, PageBytes};
use pgrx::prelude::*;

use crate::failure::Failure;

/// The file of an index.
pub(super) struct IndexFile {
    index: pg_sys::Relation,
    logged: bool,
    /// A small ring of buffers, so that the index does not push everything else out of shared buffers.
    strategy: pg_sys::BufferAccessStrategy,
}

impl IndexFile {
    /// # Safety
    /// `index` must be an open, empty index that nobody else uses.
    pub(super) unsafe fn new(index: pg_sys::Relation) -> Self {
        // SAFETY: as promised by the caller.
        unsafe {
            let strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKWRITE);
            Self { index, logged: needs_wal(index), strategy }
        }
    }

    /// Appends a page, which must become `block`.
    pub(super) fn append(&mut self, block: u32, page: &PageBytes) -> Result<(), Failure> {
        // SAFETY: the buffer is pinned and locked while the page is copied into it, and every buffer has PAGE_SIZE bytes. An error
        // between the change and its log record would leave them different, so it is made to end the server (as everywhere
        // in PostgreSQL). Logged while the pin of the ring is held: reading the page again would take it out of the ring.
        let found = unsafe {
            let main = pg_sys::ForkNumber::MAIN_FORKNUM;
            let mode = pg_sys::ReadBufferMode::RBM_NORMAL;
            let buffer = pg_sys::ReadBufferExtended(self.index, main, pg_sys::InvalidBlockNumber, mode, self.strategy);
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_EXCLUSIVE as i32);
            let found = pg_sys::BufferGetBlockNumber(buffer);
            if found == block {
                let target = pg_sys::BufferGetPage(buffer).cast::<u8>();
                pg_sys::CritSectionCount += 1;
                std::ptr::copy_nonoverlapping(page.as_ptr(), target, PAGE_SIZE);
                pg_sys::MarkBufferDirty(buffer);
                if self.logged {
                    pg_sys::log_newpage_buffer(buffer, true);
                }
                pg_sys::CritSectionCount -= 1;
            }
            pg_sys::UnlockReleaseBuffer(buffer);
            found
        };
        if found != block {
            let code = PgSqlErrorCode::ERRCODE_INTERNAL_ERROR;
            return Err(Failure::new(code, format!("index was extended by block {found}, {block} expected")));
        }
        Ok(())
    }

    /// All pages are there.
    pub(super) fn finish(self) {}
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
