//! Writes the index by the bulk writer of PostgreSQL 17 and later, which logs and writes many pages at a time, bypasses shared
//! buffers, and makes sure that the pages reach the disk.

use pages::{PAGE_SIZE, PageBytes};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

/// PostgreSQL's opaque structure.
#[repr(C)]
struct BulkWriteState {
    _private: [u8; 0],
}

// storage/bulk_write.h, which pgrx lacks: unlike the functions of `pg_sys`, these are not guarded.
unsafe extern "C-unwind" {
    fn smgr_bulk_start_rel(relation: pg_sys::Relation, fork: pg_sys::ForkNumber::Type) -> *mut BulkWriteState;
    fn smgr_bulk_get_buf(state: *mut BulkWriteState) -> *mut PageBytes;
    fn smgr_bulk_write(state: *mut BulkWriteState, block: pg_sys::BlockNumber, page: *mut PageBytes, standard: bool);
    fn smgr_bulk_finish(state: *mut BulkWriteState);
}

/// The file of an index.
pub(super) struct IndexFile {
    state: *mut BulkWriteState,
}

impl IndexFile {
    /// # Safety
    /// `index` must be an open, empty index that nobody else uses, until the end of the transaction.
    pub(super) unsafe fn new(index: pg_sys::Relation, _blocks: u32) -> Self {
        // SAFETY: as promised by the caller. The state lies in the current memory context, that of the statement.
        let state = unsafe { pg_guard_ffi_boundary(|| smgr_bulk_start_rel(index, pg_sys::ForkNumber::MAIN_FORKNUM)) };
        Self { state }
    }

    /// Appends pages, the first of which must become block `first`.
    pub(super) fn append(&mut self, first: u32, pages: &mut [PageBytes]) {
        for (block, page) in (first..).zip(pages) {
            // SAFETY: the state lives as long as the statement. A buffer has PAGE_SIZE bytes, and is ours until it is handed back.
            unsafe {
                let buffer = pg_guard_ffi_boundary(|| smgr_bulk_get_buf(self.state));
                std::ptr::copy_nonoverlapping(page.as_ptr(), buffer.cast::<u8>(), PAGE_SIZE);
                pg_guard_ffi_boundary(|| smgr_bulk_write(self.state, block, buffer, true));
            }
        }
    }

    /// Called after the last page. The file of an index that fails is removed with the transaction.
    pub(super) fn finish(self) {
        // SAFETY: the state lives as long as the statement, and is not used again.
        unsafe { pg_guard_ffi_boundary(|| smgr_bulk_finish(self.state)) };
    }
}
