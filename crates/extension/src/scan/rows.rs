//! Puts the rows of PostgreSQL's scan for index builds into batches.

use std::ffi::c_void;

use pgrx::PgMemoryContexts;
use pgrx::prelude::*;

use super::batches::Filling;
use crate::column::Column;
use crate::connection_thread::Gone;
use crate::failure::{Failure, or_raise};
use crate::raised;

/// How a process that reads rows gets and passes on its batches.
pub(super) trait Reader {
    /// An empty batch; waits until there is one.
    fn empty_batch(&self) -> Result<Filling<'_>, Gone>;

    /// A batch was filled.
    fn has_filled(&self);

    /// Called for each row: wakes processes and threads that wait for a batch.
    fn pass_on_wakeups(&self);
}

/// Reads rows into batches.
pub(super) struct Rows<'a, R> {
    reader: &'a R,
    column: &'a Column,
    batch: Option<Filling<'a>>,
    /// Rows put into batches.
    rows: u64,
    /// Memory context, reset after every row.
    context: PgMemoryContexts,
}

/// A table and its index, opened and locked as for `ambuild`, and the scan: null for one that this process does alone.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Relations {
    pub(super) heap: pg_sys::Relation,
    pub(super) index: pg_sys::Relation,
    pub(super) info: *mut pg_sys::IndexInfo,
    pub(super) scan: pg_sys::TableScanDesc,
}

/// The results of one process.
pub(super) struct Found {
    /// Rows of the table that were scanned.
    pub(super) heap_tuples: f64,
    /// Rows that go into the index.
    pub(super) rows: u64,
}

impl<'a, R: Reader> Rows<'a, R> {
    /// Puts every row of the index into batches, by PostgreSQL's own scan for index builds, which handles the predicate of a partial
    /// index, expressions, HOT chains and rows that only old snapshots see.
    ///
    /// # Safety
    /// The relations must be as [`Relations`] says.
    pub(super) unsafe fn read(reader: &'a R, column: &'a Column, relations: Relations, show_progress: bool) -> Found {
        let Relations { heap, index, info, scan } = relations;
        let context = PgMemoryContexts::new("external hnsw build");
        let mut rows = Self { reader, column, batch: None, rows: 0, context };
        let state = (&raw mut rows).cast::<c_void>();
        // SAFETY: the relations are as promised by the caller; `state` points to `rows`, which nothing else uses during the scan, and the
        // callback casts it back to the same type.
        let found = unsafe { build_scan(heap, index, info, callback::<R>, state, show_progress, scan) };
        rows.hand_over();
        Found { heap_tuples: found, rows: rows.rows }
    }

    /// Adds a row to a batch, unless pgvector would not index it.
    ///
    /// # Safety
    /// `tid` and `value` must be those of a row, not null.
    unsafe fn add(&mut self, tid: pg_sys::ItemPointer, value: pg_sys::Datum) {
        if self.batch.is_none() {
            let Ok(batch) = self.reader.empty_batch() else {
                // The function that started the thread raises the thread's own failure instead.
                let code = PgSqlErrorCode::ERRCODE_QUERY_CANCELED;
                Failure::new(code, "the connection to the builder has ended").raise();
            };
            self.batch = Some(batch);
        }
        let Self { column, batch, context, .. } = self;
        // SAFETY: as promised by the caller; an ItemPointer is six bytes. The memory of the row is freed by the reset.
        unsafe {
            let tid = tid.cast::<[u8; 6]>().read_unaligned();
            let taken = context.switch_to(|_| {
                if let (Some(batch), Some(value)) = (batch, column.index_value(value)?) {
                    batch.push(tid, &value);
                }
                Ok(())
            });
            context.reset();
            or_raise(taken);
        }
        if self.batch.as_ref().is_some_and(Filling::is_full) {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if let Some(batch) = self.batch.take().filter(|batch| batch.rows() > 0) {
            self.rows += batch.rows() as u64;
            batch.hand_over();
            self.reader.has_filled();
        }
    }
}

/// Takes one row. Not guarded, and with nothing to drop, so that a parallel worker's error found here passes through unchanged.
unsafe extern "C-unwind" fn callback<R: Reader>(
    _index: pg_sys::Relation,
    tid: pg_sys::ItemPointer,
    values: *mut pg_sys::Datum,
    is_null: *mut bool,
    _alive: bool,
    state: *mut c_void,
) {
    #[pg_guard]
    unsafe extern "C-unwind" fn guarded<R: Reader>(
        tid: pg_sys::ItemPointer,
        values: *mut pg_sys::Datum,
        is_null: *mut bool,
        state: *mut c_void,
    ) {
        // SAFETY: PostgreSQL passes the row's TID and a value per column; the state is what `read` passed, which nothing else uses
        // meanwhile.
        raised::until_raised(|| unsafe {
            let rows = &mut *state.cast::<Rows<'_, R>>();
            rows.reader.pass_on_wakeups();
            if !*is_null {
                rows.add(tid, *values);
            }
        });
    }
    // SAFETY: as above.
    unsafe {
        guarded::<R>(tid, values, is_null, state);
        raised::raise_kept();
    }
}

type Callback = unsafe extern "C-unwind" fn(
    pg_sys::Relation,
    pg_sys::ItemPointer,
    *mut pg_sys::Datum,
    *mut bool,
    bool,
    *mut c_void,
);

/// PostgreSQL's `table_index_build_scan` over the whole table. Errors of users' functions in it pass through unchanged.
///
/// # Safety
/// As for PostgreSQL's function; `state` is for the callback.
pub(crate) unsafe fn build_scan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
    callback: Callback,
    state: *mut c_void,
    show_progress: bool,
    scan: pg_sys::TableScanDesc,
) -> f64 {
    const ALL: pg_sys::BlockNumber = pg_sys::InvalidBlockNumber;
    // SAFETY: as promised by the caller; every table has an access method, which has the function.
    unsafe {
        let run = (*(*table).rd_tableam).index_build_range_scan.expect("required by PostgreSQL");
        raised::keep_error(|| run(table, index, info, true, false, show_progress, 0, ALL, Some(callback), state, scan))
    }
}
