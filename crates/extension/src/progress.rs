//! `pg_stat_progress_create_index`, from the first row to the last page.

use std::ffi::{CStr, c_char};

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
}

impl Phase {
    /// The phase for a builder's; `Waiting` while the builder still takes rows.
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

/// Enters a phase with `total` tuples to do.
pub(crate) fn enter(phase: Phase, total: u64) {
    set(pg_sys::PROGRESS_CREATEIDX_SUBPHASE, phase as i64);
    set(pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, 0);
    set(pg_sys::PROGRESS_CREATEIDX_TUPLES_TOTAL, total as i64);
}

/// Tuples done in the phase, and their total, if known.
pub(crate) fn tuples(done: u64, total: u64) {
    set(pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, done as i64);
    if total > 0 {
        set(pg_sys::PROGRESS_CREATEIDX_TUPLES_TOTAL, total as i64);
    }
}

/// Blocks of the index written.
pub(crate) fn blocks(done: u32, total: u32) {
    // The heap scan has finished with these.
    set(pg_sys::PROGRESS_SCAN_BLOCKS_TOTAL, i64::from(total));
    set(pg_sys::PROGRESS_SCAN_BLOCKS_DONE, i64::from(done));
}

fn set(parameter: u32, value: i64) {
    // SAFETY: writes to this backend's own status entry.
    unsafe { pg_sys::pgstat_progress_update_param(parameter as i32, value) };
}
