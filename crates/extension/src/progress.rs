//! `pg_stat_progress_create_index`, from the connection to the last page; and for functions that have a builder check or try indexes.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use crate::hook;

/// A phase of a build, as shown in `pg_stat_progress_create_index.phase` after "building index: ".
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub(crate) enum Phase {
    /// pgvector's own second phase.
    LoadingTuples = 2,
    Connecting = 3,
    Waiting = 4,
    BuildingGraph = 5,
    ChoosingNeighbors = 6,
    OrderingElements = 7,
    WritingPages = 8,
    Queued = 9,
    /// Of `lantern_index.check()`.
    SendingPages = 10,
    /// Of `lantern_index.check()`.
    CheckingIndex = 11,
    /// Of `lantern_index.advise()`.
    TryingIndexes = 12,
}

impl Phase {
    /// The phase that shows a builder's phase; `Waiting` while the builder still takes rows.
    pub(crate) fn of_builder(phase: u8) -> Self {
        match protocol::Phase::from_number(phase) {
            Some(protocol::Phase::Graph) => Self::BuildingGraph,
            Some(protocol::Phase::Repair) => Self::ChoosingNeighbors,
            Some(protocol::Phase::Order) => Self::OrderingElements,
            _ => Self::Waiting,
        }
    }

    fn name(number: i64) -> Option<&'static CStr> {
        [
            (Self::Connecting, c"connecting to builder"),
            (Self::Queued, c"waiting for a place on the builder"),
            (Self::Waiting, c"waiting for external build"),
            (Self::BuildingGraph, c"building graph"),
            (Self::ChoosingNeighbors, c"choosing neighbors"),
            (Self::OrderingElements, c"ordering elements"),
            (Self::WritingPages, c"writing pages"),
            (Self::SendingPages, c"sending pages to builder"),
            (Self::CheckingIndex, c"builder checks index"),
            (Self::TryingIndexes, c"builder tries indexes"),
        ]
        .into_iter()
        .find_map(|(phase, name)| (phase as i64 == number).then_some(name))
    }
}

/// The names of our phases; pgvector names its own.
#[pg_guard]
pub(crate) unsafe extern "C-unwind" fn ambuildphasename(phase: i64) -> *mut c_char {
    match (Phase::name(phase), hook::original().phase_name) {
        (Some(name), _) => name.as_ptr().cast_mut(),
        // SAFETY: pgvector's own callback.
        (None, Some(pgvectors)) => unsafe { pg_guard_ffi_boundary(|| pgvectors(phase)) },
        (None, None) => std::ptr::null_mut(),
    }
}

/// Shows a function's work in the view, until this is dropped or an error ends the transaction.
pub(crate) struct Shown {
    /// Another statement, such as COPY, may show its own progress already.
    is_ours: bool,
}

impl Shown {
    /// `index` is the oid of an index, or invalid.
    pub(crate) fn new(table: pg_sys::Oid, index: pg_sys::Oid) -> Self {
        // SAFETY: reads and writes this backend's own status entry, and reads a catalog.
        unsafe {
            let is_ours = shows_nothing();
            if is_ours {
                let method = pg_sys::get_am_oid(c"hnsw".as_ptr(), true);
                pg_sys::pgstat_progress_start_command(
                    pg_sys::ProgressCommandType::PROGRESS_COMMAND_CREATE_INDEX,
                    table,
                );
                // The access method names the phases within PostgreSQL's phase BUILD. (The bindings type the first two constants as oids.)
                set([
                    (pg_sys::PROGRESS_CREATEIDX_INDEX_OID.to_u32(), index.to_u32().into()),
                    (pg_sys::PROGRESS_CREATEIDX_ACCESS_METHOD_OID.to_u32(), method.to_u32().into()),
                    (pg_sys::PROGRESS_CREATEIDX_PHASE, pg_sys::PROGRESS_CREATEIDX_PHASE_BUILD.into()),
                ]);
            }
            Self { is_ours }
        }
    }
}

/// Whether this backend shows no progress of a statement in any of PostgreSQL's views.
///
/// # Safety
/// For the backend's main thread.
#[cfg(not(feature = "pg13"))]
unsafe fn shows_nothing() -> bool {
    // SAFETY: this backend's own status entry, or null.
    let entry = unsafe { pg_sys::MyBEEntry.as_ref() };
    entry.is_some_and(|entry| entry.st_progress_command == pg_sys::ProgressCommandType::PROGRESS_COMMAND_INVALID)
}

/// PostgreSQL 13 keeps a backend's own status entry private: it might overwrite the progress of another statement.
#[cfg(feature = "pg13")]
unsafe fn shows_nothing() -> bool {
    false
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: writes to this backend's own status entry.
            unsafe { pg_sys::pgstat_progress_end_command() };
        }
    }
}

/// Does `work`, and shows this backend's progress again if that has ended it. The rollback of a subtransaction ends any progress, also that
/// of a statement such as COPY.
///
/// # Safety
/// For the backend's main thread.
pub(crate) unsafe fn restored_after(work: impl FnOnce()) {
    // SAFETY: reads and writes this backend's own status entry, which only this thread writes.
    #[cfg(not(feature = "pg13"))]
    unsafe {
        let shown = pg_sys::MyBEEntry
            .as_ref()
            .map(|entry| (entry.st_progress_command, entry.st_progress_command_target, entry.st_progress_param));
        work();
        let Some((command, target, parameters)) = shown else { return };
        if command != pg_sys::ProgressCommandType::PROGRESS_COMMAND_INVALID && shows_nothing() {
            pg_sys::pgstat_progress_start_command(command, target);
            let mut numbers = 0..;
            set(parameters.map(|value| (numbers.next().unwrap_or_default(), value)));
        }
    }
    #[cfg(feature = "pg13")]
    work();
}

/// The total of tuples that is shown.
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// Enters a phase with `total` tuples to do.
pub(crate) fn enter(phase: Phase, total: u64) {
    TOTAL.store(total, Ordering::Relaxed);
    set([
        (pg_sys::PROGRESS_CREATEIDX_SUBPHASE, phase as i64),
        (pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, 0),
        (pg_sys::PROGRESS_CREATEIDX_TUPLES_TOTAL, total as i64),
    ]);
}

/// Tuples done in the phase, and their total, if known (else 0). A total that was too low, as the planner's estimate may be, is raised.
pub(crate) fn tuples(done: u64, total: u64) {
    let known = if total > 0 { total } else { TOTAL.load(Ordering::Relaxed) };
    let total = if known > 0 { known.max(done) } else { 0 };
    TOTAL.store(total, Ordering::Relaxed);
    set([
        (pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, done as i64),
        (pg_sys::PROGRESS_CREATEIDX_TUPLES_TOTAL, total as i64),
    ]);
}

/// Blocks of the index written, or sent.
pub(crate) fn blocks(done: u32, total: u32) {
    // The heap scan, which has ended, counted its blocks here.
    set([(pg_sys::PROGRESS_SCAN_BLOCKS_TOTAL, total.into()), (pg_sys::PROGRESS_SCAN_BLOCKS_DONE, done.into())]);
}

/// Sets several values, which others see change at once.
fn set<const N: usize>(values: [(u32, i64); N]) {
    let parameters = values.map(|(parameter, _)| parameter as i32);
    let values = values.map(|(_, value)| value);
    // SAFETY: writes to this backend's own status entry, and reads as many elements of both arrays as they have.
    unsafe { pg_sys::pgstat_progress_update_multi_param(N as i32, parameters.as_ptr(), values.as_ptr()) };
}
