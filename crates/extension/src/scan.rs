//! Reads the table once and sends its rows.

mod batches;
mod parallel;
mod plan;
mod rows;
mod size;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use graph::HeapTid;
use pages::RowDigest;
use pgrx::prelude::*;

use self::batches::{Batches, Filling, Shape};
use self::parallel::Workers;
pub(crate) use self::rows::build_scan;
use self::rows::{Reader, Relations, Rows};
pub(crate) use self::size::{blocks, estimate_rows, stored_len};
use crate::column::Column;
use crate::connection_thread::{self, Gone};
use crate::failure::{Failure, information, tell};
use crate::link::Link;
use crate::progress;
use crate::rate_limit::RateLimit;
use crate::session::Session;
use crate::wait;

/// Batches of rows, of about 256 KiB each; and how many more for each parallel worker.
const BATCHES: usize = 8;
const BATCHES_OF_WORKER: usize = 4;

/// Polling interval of the thread and of a waiting backend while there are workers: these wake only the backend, which wakes the thread,
/// but not while it evaluates an expression.
const WORKERS_TICK: Duration = Duration::from_millis(10);

/// The results of the scan.
pub(crate) struct Scanned {
    /// Rows of the table that were scanned, for the planner's statistics.
    pub(crate) heap_tuples: f64,
    /// Digest of the rows that were sent.
    pub(crate) digest: RowDigest,
    /// Parallel workers that took part.
    pub(crate) workers: u32,
}

/// Sends every row that belongs into the index, with as many parallel workers as PostgreSQL gives.
///
/// # Safety
/// The relations must be open and locked as for `ambuild`.
pub(crate) unsafe fn run(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
    column: &Column,
    session: &mut Session,
    rate_limit: &mut RateLimit,
    key: [u64; 4],
) -> Result<Scanned, Failure> {
    let value_len = column.value_type.value_len(column.dims);
    let mut relations = Relations { heap, index, info, scan: std::ptr::null_mut() };
    // SAFETY: as promised by the caller.
    let workers = unsafe {
        let wanted = plan::workers(heap, index);
        let shape = Shape::new(BATCHES + BATCHES_OF_WORKER * wanted as usize, value_len);
        if wanted > 0 { Workers::start(relations, wanted, shape) } else { None }
    };
    let mut memory = Vec::new();
    let (batches, tick) = match &workers {
        Some(workers) => {
            // SAFETY: the relations are open.
            relations.scan = unsafe { workers.join(heap) };
            (workers.batches(), WORKERS_TICK)
        }
        None => {
            let shape = Shape::new(BATCHES, value_len);
            memory.resize(shape.bytes().div_ceil(size_of::<u64>()), 0u64);
            // SAFETY: `memory` has at least `shape.bytes()` bytes, aligned as a `u64`; it is not used otherwise, and lives until this function
            // returns, longer than the batches.
            (unsafe { Batches::create(memory.as_mut_ptr().cast(), shape) }, wait::TICK)
        }
    };
    let closed = AtomicBool::new(false);
    let (found, digest) = connection_thread::run_both(
        session,
        tick,
        |session, link| send(session, link, batches, &closed, rate_limit, RowDigest::new(key)),
        |link| {
            let backend = Backend { link, batches, workers: workers.as_ref() };
            // SAFETY: as promised by the caller.
            let found = unsafe { Rows::read(&backend, column, relations, true) };
            backend.wait_for_workers()?;
            closed.store(true, Ordering::SeqCst);
            link.wake_thread();
            Ok(found)
        },
    )?;
    let mut heap_tuples = found.heap_tuples;
    let started = workers.as_ref().map_or(0, Workers::started);
    if let Some(workers) = workers {
        let (theirs, broken_hot_chain) = workers.finish();
        heap_tuples += theirs.heap_tuples;
        let rows = format!("parallel workers have read {} of {} rows", theirs.rows, found.rows + theirs.rows);
        tell(PgLogLevel::DEBUG1, information(rows));
        // SAFETY: as promised by the caller.
        unsafe { (*info).ii_BrokenHotChain |= broken_hot_chain };
    }
    Ok(Scanned { heap_tuples, digest, workers: started })
}

/// The thread: sends full batches, and keeps the connection alive meanwhile. Returns the digest of all rows.
fn send(
    session: &mut Session,
    link: &Link,
    batches: Batches<'_>,
    closed: &AtomicBool,
    rate_limit: &mut RateLimit,
    mut digest: RowDigest,
) -> Result<RowDigest, Failure> {
    loop {
        // After the backend has given up, workers may still fill batches: with always a full one, nothing else would notice.
        link.check()?;
        // Read before looking for a batch: one may arrive between the two.
        let is_closed = closed.load(Ordering::SeqCst);
        match batches.full() {
            Some(batch) => {
                let rows = batch.rows();
                rows.for_each(|tid, value| digest.add(HeapTid(tid), value));
                session.send(&rows)?;
                let pause = rate_limit.pause_after(rows.bytes());
                drop(batch);
                link.wake_backend();
                session.pause(pause)?;
            }
            None if is_closed => return Ok(digest),
            None => session.idle()?,
        }
    }
}

/// The backend as a reader of rows. It also wakes waiting workers and the thread.
struct Backend<'a> {
    link: &'a Link,
    batches: Batches<'a>,
    workers: Option<&'a Workers>,
}

impl Reader for Backend<'_> {
    fn empty_batch(&self) -> Result<Filling<'_>, Gone> {
        loop {
            if self.link.is_over() {
                return Err(Gone);
            }
            match self.batches.empty() {
                Some(batch) => return Ok(batch),
                None => self.wait(),
            }
        }
    }

    fn has_filled(&self) {
        self.link.wake_thread();
        progress::tuples(self.batches.rows(), 0);
    }

    fn pass_on_wakeups(&self) {
        let Some(workers) = self.workers else { return };
        if self.link.thread_waits() && self.batches.has_full() {
            self.link.wake_thread();
        }
        workers.wake_one();
    }
}

impl Backend<'_> {
    /// Waits until something has changed.
    fn wait(&self) {
        self.pass_on_wakeups();
        progress::tuples(self.batches.rows(), 0);
        self.link.wait();
    }

    fn wait_for_workers(&self) -> Result<(), Gone> {
        let Some(workers) = self.workers else { return Ok(()) };
        workers.wait_until_attached();
        while !workers.are_done() {
            if self.link.is_over() {
                return Err(Gone);
            }
            self.wait();
        }
        Ok(())
    }
}
