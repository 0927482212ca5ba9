//! Reads the pages of an index that is in use.

use std::io;
use std::panic::AssertUnwindSafe;

use pages::{PAGE_SIZE, PageBytes, PageSource};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use crate::progress;
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

    /// Like [`Self::new`], for an index whose file may be missing.
    ///
    /// # Errors
    /// PostgreSQL cannot read the file.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(super) unsafe fn try_new(index: pg_sys::Relation) -> io::Result<Self> {
        // SAFETY: as promised by the caller.
        unsafe { attempt(|| Self::new(index)) }
    }
}

impl PageSource for LivePages {
    fn blocks(&self) -> u32 {
        self.blocks
    }

    fn read<'a>(&'a mut self, block: u32, buffer: &'a mut PageBytes) -> io::Result<&'a PageBytes> {
        pgrx::check_for_interrupts!();
        // SAFETY: the index is open; the shared buffer has PAGE_SIZE bytes, and is pinned and locked while they are copied. An error releases
        // it.
        unsafe {
            attempt(|| {
                let (main, mode) = (pg_sys::ForkNumber::MAIN_FORKNUM, pg_sys::ReadBufferMode::RBM_NORMAL);
                let shared = pg_sys::ReadBufferExtended(self.index, main, block, mode, self.strategy);
                pg_sys::LockBuffer(shared, pg_sys::BUFFER_LOCK_SHARE as i32);
                let bytes = pg_sys::BufferGetPage(shared).cast::<u8>();
                std::ptr::copy_nonoverlapping(bytes, buffer.as_mut_ptr(), PAGE_SIZE);
                pg_sys::UnlockReleaseBuffer(shared);
            })?;
        }
        Ok(buffer)
    }

    fn pause(&mut self) {
        pgrx::check_for_interrupts!();
    }
}

/// Runs `work` in a subtransaction, as PL/pgSQL runs a block with EXCEPTION. An error for a damaged page or file ends only the
/// subtransaction, and is returned with its message; all others, such as a cancellation, end the statement. So does any error on a standby
/// before PostgreSQL 16, where a recovery conflict within a subtransaction would end the session.
///
/// # Safety
/// In a transaction. `work` must leave nothing open, and drop nothing after an error.
unsafe fn attempt<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    // SAFETY: the subtransaction ends here, however `work` does: PostgreSQL leaves that to whoever began it. It changes context and owner,
    // which are put back.
    unsafe {
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        if pg_sys::RecoveryInProgress() {
            return Ok(work());
        }
        let (context, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::CurrentMemoryContext = context;
        let result =
            PgTryBuilder::new(AssertUnwindSafe(|| Ok(work()))).catch_others(|error| Err(Box::new(error))).execute();
        match result {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => progress::restored_after(|| pg_sys::RollbackAndReleaseCurrentSubTransaction()),
        }
        pg_sys::CurrentMemoryContext = context;
        pg_sys::CurrentResourceOwner = owner;
        result.or_else(|error: Box<CaughtError>| match *error {
            CaughtError::PostgresError(report) if is_read_error(report.sql_error_code()) => {
                Err(io::Error::other(report.message().to_owned()))
            }
            other => other.rethrow(),
        })
    }
}

/// Whether an error says that a page or a file is damaged, missing or cannot be opened.
fn is_read_error(code: PgSqlErrorCode) -> bool {
    use PgSqlErrorCode::{
        ERRCODE_DATA_CORRUPTED, ERRCODE_INDEX_CORRUPTED, ERRCODE_INSUFFICIENT_PRIVILEGE, ERRCODE_IO_ERROR,
        ERRCODE_UNDEFINED_FILE,
    };
    matches!(
        code,
        ERRCODE_DATA_CORRUPTED
            | ERRCODE_INDEX_CORRUPTED
            | ERRCODE_INSUFFICIENT_PRIVILEGE
            | ERRCODE_IO_ERROR
            | ERRCODE_UNDEFINED_FILE
    )
}
