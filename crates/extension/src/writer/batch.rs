//! Pages that are logged and written together.

use pages::{PAGE_SIZE, PageBytes};
use pgrx::pg_sys;

const _: () = assert!(pg_sys::BLCKSZ as usize == PAGE_SIZE, "pgvector's pages are made for blocks of 8 KiB");

/// The most pages of a WAL record (`XLR_MAX_BLOCK_ID`).
const PAGES: usize = 32;

/// The alignment of buffers for direct I/O (`PG_IO_ALIGN_SIZE`).
#[repr(C, align(4096))]
struct Aligned([PageBytes; PAGES]);

/// Consecutive pages.
pub(super) struct Batch {
    pages: Box<Aligned>,
    count: usize,
    first: u32,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self { pages: Box::new(Aligned([[0; PAGE_SIZE]; PAGES])), count: 0, first: 0 }
    }

    /// Begins anew with `block`.
    pub(super) fn start(&mut self, block: u32) {
        (self.count, self.first) = (0, block);
    }

    /// Adds the next page; there must be room.
    pub(super) fn push(&mut self, page: &PageBytes) {
        self.pages.0[self.count] = *page;
        self.count += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == PAGES
    }

    pub(super) fn first_block(&self) -> u32 {
        self.first
    }

    pub(super) fn pages(&mut self) -> &mut [PageBytes] {
        &mut self.pages.0[..self.count]
    }
}
