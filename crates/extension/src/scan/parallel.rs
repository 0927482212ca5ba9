//! PostgreSQL's parallel workers, which read the table together with the backend.
//!
//! They only fill batches in shared memory; the backend has the connection. `plan` says how many are requested; PostgreSQL may start fewer,
//! or none. An error of a worker is raised in the backend at its next check for interrupts; an error of the backend ends the workers with
//! the transaction.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pgrx::prelude::*;

use super::batches::{Batches, Shape};
use super::rows::{Found, Relations};
use crate::connection_thread;
use crate::failure::context;
use crate::raised;

/// Keys in the shared memory's table of contents.
pub(super) mod key {
    pub(in crate::scan) const SHARED: u64 = 1;
    pub(in crate::scan) const SCAN: u64 = 2;
    pub(in crate::scan) const BATCHES: u64 = 3;
    pub(in crate::scan) const QUERY: u64 = 4;
    pub(in crate::scan) const BUFFER_USAGE: u64 = 5;
    pub(in crate::scan) const WAL_USAGE: u64 = 6;
}

/// Version of the shared memory's layout. A worker loads the library's file, which may be newer than the library in the backend.
pub(super) const LAYOUT: u32 = 1;

/// What backend and workers share besides the scan and the batches.
#[repr(C)]
pub(super) struct Shared {
    /// [`LAYOUT`] of the backend; must remain the first field.
    pub(super) layout: u32,
    pub(super) heap: pg_sys::Oid,
    pub(super) index: pg_sys::Oid,
    pub(super) concurrent: bool,
    /// The build's id, for the CONTEXT of errors.
    pub(super) build: context::BuildId,
    /// The backend's latch, at the same address in all processes.
    pub(super) backend: *mut pg_sys::Latch,
    /// Where workers wait for an empty batch, and how many do.
    pub(super) room: pg_sys::ConditionVariable,
    pub(super) waiting: AtomicU32,
    /// Workers that have finished their part of the scan.
    done: AtomicU32,
    /// Totals of all workers: rows of the table, and rows of the index.
    heap_tuples: AtomicU64,
    rows: AtomicU64,
    broken_hot_chain: AtomicBool,
}

impl Shared {
    /// Worker: adds its results at the end of its scan.
    pub(super) fn add(&self, found: &Found, broken_hot_chain: bool) {
        // The float is a sum of integers.
        self.heap_tuples.fetch_add(found.heap_tuples as u64, Ordering::Relaxed);
        self.rows.fetch_add(found.rows, Ordering::Relaxed);
        self.broken_hot_chain.fetch_or(broken_hot_chain, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the backend waits for its workers, so its latch is there.
        unsafe { pg_sys::SetLatch(self.backend) };
    }
}

/// Workers that were started.
pub(super) struct Workers {
    context: *mut pg_sys::ParallelContext,
    shared: *mut Shared,
    batches: Batches<'static>,
    snapshot: pg_sys::Snapshot,
}

unsafe extern "C-unwind" {
    /// PostgreSQL's own, without the guard that `pg_sys` adds: errors of workers are raised in them.
    #[link_name = "WaitForParallelWorkersToAttach"]
    fn wait_until_attached(context: *mut pg_sys::ParallelContext);
    #[link_name = "WaitForParallelWorkersToFinish"]
    fn wait_until_finished(context: *mut pg_sys::ParallelContext);
}

impl Workers {
    /// Starts up to `wanted` workers; `None` if none can be started.
    ///
    /// # Safety
    /// The relations must be open and locked as for `ambuild`.
    pub(super) unsafe fn start(relations: Relations, wanted: i32, shape: Shape) -> Option<Self> {
        let Relations { heap, index, info, .. } = relations;
        // SAFETY: as promised by the caller. An error ends the transaction, which takes back all that was done.
        unsafe {
            pg_sys::EnterParallelMode();
            let context = pg_sys::CreateParallelContext(library(), c"lantern_index_scan_worker".as_ptr(), wanted);
            let concurrent = (*info).ii_Concurrent;
            let snapshot = match concurrent {
                true => pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot()),
                false => &raw mut pg_sys::SnapshotAnyData,
            };
            let query = pg_sys::debug_query_string;
            let query = if query.is_null() { c"" } else { CStr::from_ptr(query) }.to_bytes_with_nul();
            let for_all = |bytes: usize| bytes * wanted as usize;
            let sizes = [
                (key::SHARED, size_of::<Shared>()),
                (key::SCAN, pg_sys::table_parallelscan_estimate(heap, snapshot)),
                (key::BATCHES, shape.bytes()),
                (key::QUERY, query.len()),
                (key::BUFFER_USAGE, for_all(size_of::<pg_sys::BufferUsage>())),
                (key::WAL_USAGE, for_all(size_of::<pg_sys::WalUsage>())),
            ];
            sizes.iter().for_each(|&(_, size)| reserve(context, size));
            pg_sys::InitializeParallelDSM(context);
            let mut workers = Self { context, shared: std::ptr::null_mut(), batches: Batches::none(), snapshot };
            if (*context).seg.is_null() {
                // No shared memory segment was available.
                workers.end();
                return None;
            }
            let toc = (*context).toc;
            let [shared, scan, batches, text, ..] = sizes.map(|(key, size)| {
                let place = pg_sys::shm_toc_allocate(toc, size);
                pg_sys::shm_toc_insert(toc, key, place);
                place
            });
            workers.shared = shared.cast();
            workers.shared.write(Shared {
                layout: LAYOUT,
                heap: (*heap).rd_id,
                index: (*index).rd_id,
                concurrent,
                build: context::build(),
                backend: pg_sys::MyLatch,
                room: MaybeUninit::zeroed().assume_init(),
                waiting: AtomicU32::new(0),
                done: AtomicU32::new(0),
                heap_tuples: AtomicU64::new(0),
                rows: AtomicU64::new(0),
                broken_hot_chain: AtomicBool::new(false),
            });
            pg_sys::ConditionVariableInit(&raw mut (*workers.shared).room);
            pg_sys::table_parallelscan_initialize(heap, scan.cast(), snapshot);
            workers.batches = Batches::create(batches.cast(), shape);
            text.cast::<u8>().copy_from_nonoverlapping(query.as_ptr(), query.len());
            // A FATAL error runs this callback, but no Rust destructors: end the thread before its memory is unmapped.
            pg_sys::on_dsm_detach((*context).seg, Some(before_detach), pg_sys::Datum::from(0));
            pg_sys::LaunchParallelWorkers(context);
            if workers.started() == 0 {
                workers.end();
                return None;
            }
            Some(workers)
        }
    }

    pub(super) fn started(&self) -> u32 {
        // SAFETY: the context lives until `end`.
        unsafe { (*self.context).nworkers_launched as u32 }
    }

    pub(super) fn batches(&self) -> Batches<'_> {
        self.batches
    }

    /// Begins the backend's own part of the scan.
    ///
    /// # Safety
    /// `heap` must be the table.
    pub(super) unsafe fn join(&self, heap: pg_sys::Relation) -> pg_sys::TableScanDesc {
        // SAFETY: as promised by the caller; the scan was put there by `start`.
        unsafe {
            let scan = pg_sys::shm_toc_lookup((*self.context).toc, key::SCAN, false);
            pg_sys::table_beginscan_parallel(heap, scan.cast())
        }
    }

    /// If there is an empty batch, wakes a worker that waits for one.
    pub(super) fn wake_one(&self) {
        // SAFETY: written by `start`; what changes is atomic or PostgreSQL's.
        unsafe {
            if (*self.shared).waiting.load(Ordering::SeqCst) > 0 && self.batches.has_empty() {
                pg_sys::ConditionVariableSignal(&raw mut (*self.shared).room);
            }
        }
    }

    /// Waits until all launched workers have attached: before that, a worker that dies could go unnoticed.
    pub(super) fn wait_until_attached(&self) {
        // SAFETY: the context lives until `end`.
        unsafe { raised::keep_error(|| wait_until_attached(self.context)) };
    }

    /// Whether all workers have finished their part of the scan.
    pub(super) fn are_done(&self) -> bool {
        // SAFETY: as for `wake_one`.
        unsafe { (*self.shared).done.load(Ordering::SeqCst) >= self.started() }
    }

    /// Waits for the workers to end. Returns their results, and whether one has seen a broken HOT chain.
    pub(super) fn finish(self) -> (Found, bool) {
        // SAFETY: all that they wrote is there until `end`.
        unsafe {
            raised::keep_error(|| wait_until_finished(self.context));
            let find = |key| pg_sys::shm_toc_lookup((*self.context).toc, key, false);
            let buffers = find(key::BUFFER_USAGE).cast::<pg_sys::BufferUsage>();
            let wal = find(key::WAL_USAGE).cast::<pg_sys::WalUsage>();
            for worker in 0..self.started() as usize {
                pg_sys::InstrAccumParallelQuery(buffers.add(worker), wal.add(worker));
            }
            let shared = &*self.shared;
            let heap_tuples = shared.heap_tuples.load(Ordering::Relaxed) as f64;
            let found = Found { heap_tuples, rows: shared.rows.load(Ordering::Relaxed) };
            let broken = shared.broken_hot_chain.load(Ordering::Relaxed);
            self.end();
            (found, broken)
        }
    }

    /// Leaves parallel mode.
    fn end(self) {
        // SAFETY: nobody uses the shared memory any more.
        unsafe {
            if self.snapshot != &raw mut pg_sys::SnapshotAnyData {
                pg_sys::UnregisterSnapshot(self.snapshot);
            }
            pg_sys::DestroyParallelContext(self.context);
            pg_sys::ExitParallelMode();
        }
    }
}

/// Reserves shared memory: PostgreSQL's macros `shm_toc_estimate_chunk` and `shm_toc_estimate_keys`.
///
/// # Safety
/// The context must be one whose memory is not yet there.
unsafe fn reserve(context: *mut pg_sys::ParallelContext, bytes: usize) {
    // SAFETY: as promised by the caller.
    unsafe {
        let estimator = &mut (*context).estimator;
        estimator.space_for_chunks += bytes.next_multiple_of(pg_sys::ALIGNOF_BUFFER as usize);
        estimator.number_of_keys += 1;
    }
}

unsafe extern "C-unwind" fn before_detach(_segment: *mut pg_sys::dsm_segment, _argument: pg_sys::Datum) {
    connection_thread::end_after_fatal_error();
}

/// The path from which PostgreSQL has loaded this library.
fn library() -> *const c_char {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let address = library as fn() -> *const c_char as *const c_void;
    // SAFETY: takes any address; zero is a valid value for all fields of the result.
    unsafe {
        let is_found = libc::dladdr(address, found.as_mut_ptr()) != 0;
        let name = found.assume_init().dli_fname;
        if is_found && !name.is_null() { name } else { c"lantern_index".as_ptr() }
    }
}
