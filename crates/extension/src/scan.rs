//! Reads the table once and sends its rows.

use std::ffi::c_void;

use graph::HeapTid;
use pages::RowDigest;
use pgrx::prelude::*;
use protocol::TuplesWriter;

use crate::belt::Belt;
use crate::column::Column;
use crate::courier::{self, Gone};
use crate::failure::{Failure, or_raise};
use crate::link::Link;
use crate::pace::Pace;
use crate::progress::{self, Phase};
use crate::raised;
use crate::session::Session;

/// Batches of rows on their way to the builder, of about 256 KiB each.
const BATCHES: usize = 8;

/// What the scan found.
pub(crate) struct Scanned {
    /// Rows of the table that were looked at, for the planner.
    pub(crate) heap_tuples: f64,
    /// Digest of the rows that were sent.
    pub(crate) digest: RowDigest,
}

struct Scan<'a> {
    link: &'a Link,
    belt: &'a Belt<TuplesWriter>,
    column: &'a Column,
    pace: &'a mut Pace,
    batch: TuplesWriter,
    rows: u64,
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
    let varying = column.value_type.value_len(column.dims).is_none();
    let belt = Belt::new((0..BATCHES).map(|_| TuplesWriter::new(varying)));
    let (heap_tuples, digest) = courier::beside(
        session,
        |session, link| send(session, link, &belt, RowDigest::new(key)),
        |link| {
            let (batch, context) = (TuplesWriter::new(varying), std::ptr::null_mut());
            let scan = Scan { link, belt: &belt, column, pace, batch, rows: 0, context };
            // SAFETY: as promised by the caller.
            unsafe { scan.run(heap, index, info) }
        },
    )?;
    Ok(Scanned { heap_tuples, digest })
}

/// The thread: sends what the scan has found, and keeps the connection alive while it finds nothing. Returns the digest of all rows.
fn send(
    session: &mut Session,
    link: &Link,
    belt: &Belt<TuplesWriter>,
    mut digest: RowDigest,
) -> Result<RowDigest, Failure> {
    loop {
        // Asked first: a batch may come between looking for one and asking.
        let is_closed = belt.is_closed();
        match belt.next() {
            Some(mut batch) => {
                batch.for_each(|tid, value| digest.add(HeapTid(tid), value));
                session.send(&mut batch)?;
                belt.give_back(batch);
                link.call_backend();
            }
            None if is_closed => return Ok(digest),
            None => session.idle()?,
        }
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
        let scan = &mut *state.cast::<Scan<'_>>();
        if *is_null {
            return;
        }
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = scan.context;
        let taken = scan.take(tid, *values);
        pg_sys::CurrentMemoryContext = before;
        pg_sys::MemoryContextReset(scan.context);
        or_raise(taken);
        if scan.batch.is_full() && scan.flush().is_err() {
            // Whoever started the thread knows its reason.
            Failure::new(PgSqlErrorCode::ERRCODE_QUERY_CANCELED, "the connection to the builder has ended").raise();
        }
    }
}

impl Scan<'_> {
    /// # Safety
    /// As for [`run`].
    unsafe fn run(
        mut self,
        heap: pg_sys::Relation,
        index: pg_sys::Relation,
        info: *mut pg_sys::IndexInfo,
    ) -> Result<f64, Gone> {
        // SAFETY: the context belongs to the statement's, so that an error frees it; the callback gets this very scan.
        let heap_tuples = unsafe {
            self.context = pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"external hnsw build".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let state = (&raw mut self).cast::<c_void>();
            let found = build_scan(heap, index, info, callback, state, true, std::ptr::null_mut());
            pg_sys::MemoryContextDelete(self.context);
            found
        };
        self.flush()?;
        self.belt.close();
        self.link.call_thread();
        Ok(heap_tuples)
    }

    /// # Safety
    /// As for `callback`.
    unsafe fn take(&mut self, tid: pg_sys::ItemPointer, value: pg_sys::Datum) -> Result<(), Failure> {
        // SAFETY: as promised by the caller; an ItemPointer is six bytes.
        let (tid, element) = unsafe { (tid.cast::<[u8; 6]>().read_unaligned(), self.column.element(value)?) };
        if let Some(element) = element {
            self.batch.push_with(tid, |out| element.append(out));
        }
        Ok(())
    }

    /// Hands the batch to the thread.
    fn flush(&mut self) -> Result<(), Gone> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.rows += u64::from(self.batch.rows());
        let bytes = self.batch.len();
        let next = self.next_batch()?;
        self.belt.put(std::mem::replace(&mut self.batch, next));
        self.link.call_thread();
        progress::tuples(self.rows, 0);
        self.pace.keep(bytes);
        Ok(())
    }

    /// Waits while all batches are on their way.
    fn next_batch(&self) -> Result<TuplesWriter, Gone> {
        loop {
            if self.link.is_over() {
                return Err(Gone);
            }
            match self.belt.empty() {
                Some(batch) => return Ok(batch),
                None => self.link.wait(),
            }
        }
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

/// PostgreSQL's `table_index_build_scan` over the whole table. Users' functions run in it: their errors stay as they are.
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
        raised::keeping(|| run(table, index, info, true, false, show_progress, 0, ALL, Some(callback), state, scan))
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
