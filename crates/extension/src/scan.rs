//! Reads the table once and sends its rows.

use std::ffi::c_void;

use graph::HeapTid;
use pages::RowDigest;
use pgrx::prelude::*;
use protocol::TuplesWriter;

use crate::column::Column;
use crate::failure::{Failure, or_raise};
use crate::pace::Pace;
use crate::progress::{self, Phase};
use crate::pulse::{self, Shared};
use crate::session::Session;

/// What the scan found.
pub(crate) struct Scanned {
    /// Rows of the table that were looked at, for the planner.
    pub(crate) heap_tuples: f64,
    /// Digest of the rows that were sent.
    pub(crate) digest: RowDigest,
}

struct Scan<'a, 'b> {
    session: &'a Shared<'b>,
    column: &'a Column,
    pace: &'a mut Pace,
    batch: TuplesWriter,
    digest: RowDigest,
    /// Emptied after every row.
    context: pg_sys::MemoryContext,
}

/// Sends every row that belongs into the index, as PostgreSQL's own scan for index builds finds them: the predicate of a partial
/// index, expressions, HOT chains and rows that only old snapshots see are its business.
///
/// # Safety
/// The relations must be open and locked as for `ambuild`.
pub(crate) unsafe fn run(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
    column: &Column,
    session: &mut Session,
    pace: &mut Pace,
    key: [u64; 4],
) -> Result<Scanned, Failure> {
    // SAFETY: as promised by the caller.
    pulse::beside(session, |session| unsafe { scan(heap, index, info, column, session, pace, key) })
}

/// # Safety
/// As for [`run`].
unsafe fn scan(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
    column: &Column,
    session: &Shared<'_>,
    pace: &mut Pace,
    key: [u64; 4],
) -> Result<Scanned, Failure> {
    let varying = column.value_type.value_len(column.dims).is_none();
    // SAFETY: the context belongs to the statement's, so that an error frees it; the callback gets this very scan.
    unsafe {
        let context = pg_sys::AllocSetContextCreateInternal(
            pg_sys::CurrentMemoryContext,
            c"external hnsw build".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let digest = RowDigest::new(key);
        let batch = TuplesWriter::new(varying);
        let mut scan = Scan { session, column, pace, batch, digest, context };
        let state = (&raw mut scan).cast::<c_void>();
        // pgrx guards PostgreSQL's own functions already; a second guard around one would end the process on an error.
        let heap_tuples =
            pg_sys::table_index_build_scan(heap, index, info, true, true, Some(callback), state, std::ptr::null_mut());
        scan.flush()?;
        pg_sys::MemoryContextDelete(context);
        Ok(Scanned { heap_tuples, digest: scan.digest })
    }
}

/// Takes one row.
#[pg_guard]
unsafe extern "C-unwind" fn callback(
    _index: pg_sys::Relation,
    tid: pg_sys::ItemPointer,
    values: *mut pg_sys::Datum,
    is_null: *mut bool,
    _alive: bool,
    state: *mut c_void,
) {
    // SAFETY: PostgreSQL passes the row's TID and a value per column; the state is the scan that `run` passed, which nothing else
    // uses meanwhile.
    unsafe {
        let scan = &mut *state.cast::<Scan<'_, '_>>();
        if *is_null {
            return;
        }
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = scan.context;
        let taken = scan.take(tid, *values);
        pg_sys::CurrentMemoryContext = before;
        pg_sys::MemoryContextReset(scan.context);
        or_raise(taken);
        if scan.batch.is_full() {
            or_raise(scan.flush());
        }
    }
}

impl Scan<'_, '_> {
    /// # Safety
    /// As for `callback`.
    unsafe fn take(&mut self, tid: pg_sys::ItemPointer, value: pg_sys::Datum) -> Result<(), Failure> {
        // SAFETY: as promised by the caller; an ItemPointer is six bytes.
        let (tid, element) = unsafe { (tid.cast::<[u8; 6]>().read_unaligned(), self.column.element(value)?) };
        if let Some(element) = element {
            let value = self.batch.push_with(tid, |out| element.append(out));
            self.digest.add(HeapTid(tid), value);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let bytes = self.batch.len();
        let mut session = self.session.session()?;
        if !self.batch.is_empty() {
            session.send(&mut self.batch)?;
        }
        progress::tuples(session.rows(), 0);
        drop(session);
        self.pace.keep(bytes);
        Ok(())
    }
}

/// The rows of a table as the planner estimates them; that of an index with a predicate is not known before the scan.
///
/// # Safety
/// `heap` must be an open table.
pub(crate) unsafe fn estimate_rows(heap: pg_sys::Relation) -> u64 {
    let (mut pages, mut tuples, mut visible) = (0, 0.0, 0.0);
    // SAFETY: as promised by the caller; no widths are asked for.
    unsafe {
        pg_sys::estimate_rel_size(heap, std::ptr::null_mut(), &raw mut pages, &raw mut tuples, &raw mut visible);
    }
    tuples as u64
}

/// Announces the scan.
pub(crate) fn enter(estimate: u64) {
    progress::enter(Phase::LoadingTuples, estimate);
}
