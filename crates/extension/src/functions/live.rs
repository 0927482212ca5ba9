//! Reads the pages of an index that is in use.

use std::io;

use pages::{PAGE_SIZE, PageBytes, PageSource};
use pgrx::prelude::*;

use crate::scan;

/// Reads the index through shared buffers, one page at a time; pages may change between reads.
pub(super) struct LivePages {
    index: pg_sys::Relation,
    blocks: u32,
    /// A small ring of buffers, so that the index does not evict everything else.
    strategy: pg_sys::BufferAccessStrategy,
}

impl LivePages {
    /// # Safety
    /// `index` must be open and locked as long as pages are read.
    pub(super) unsafe fn new(index: pg_sys::Relation) -> Self {
        // SAFETY: as promised by the caller.
        unsafe {
            let blocks = scan::blocks(index);
            let strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
            Self { index, blocks, strategy }
        }
    }
}

impl PageSource for LivePages {
    fn blocks(&self) -> u32 {
        self.blocks
    }

    fn read(&mut self, block: u32, page: &mut PageBytes) -> io::Result<()> {
        pgrx::check_for_interrupts!();
        // SAFETY: the index is open; the buffer is pinned and locked while it is copied, and every buffer has PAGE_SIZE bytes. A
        // page that PostgreSQL cannot read ends the statement with its own message.
        unsafe {
            let (main, mode) = (pg_sys::ForkNumber::MAIN_FORKNUM, pg_sys::ReadBufferMode::RBM_NORMAL);
            let buffer = pg_sys::ReadBufferExtended(self.index, main, block, mode, self.strategy);
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
            let bytes = pg_sys::BufferGetPage(buffer).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes, page.as_mut_ptr(), PAGE_SIZE);
            pg_sys::UnlockReleaseBuffer(buffer);
        }
        Ok(())
    }

    fn pause(&mut self) {
        pgrx::check_for_interrupts!();
    }
}
