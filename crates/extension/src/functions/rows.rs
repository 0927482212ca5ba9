//! The rows that an index should have.

use std::ffi::c_void;

use pgrx::prelude::*;

use crate::scan::build_scan;

/// A row's TID in PostgreSQL's encoding.
pub(super) type HeapTid = [u8; 6];

/// Called with each row's TID, as in the index, and its value.
pub(super) type Visit<'a> = &'a mut dyn FnMut(HeapTid, pg_sys::Datum);

/// Visits the rows that the index should have, by PostgreSQL's own scan for `CREATE INDEX CONCURRENTLY`, which handles
/// predicates, expressions and HOT chains.
///
/// # Safety
/// Table and index must be open and locked, and belong together; the snapshot must be registered.
pub(super) unsafe fn for_each_row(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    mut visit: Visit<'_>,
) {
    // SAFETY: the relations and the snapshot are as promised by the caller; `state` points to `visit`, which nothing else uses during the scan,
    // and the callback casts it back to the same type.
    unsafe {
        let info = pg_sys::BuildIndexInfo(index);
        // Scan the rows of one snapshot instead of all that any transaction may still see.
        (*info).ii_Concurrent = true;
        let scan = pg_sys::table_beginscan_strat(table, snapshot, 0, std::ptr::null_mut(), true, false);
        let state = (&raw mut visit).cast::<c_void>();
        // The scan is ended by this function.
        build_scan(table, index, info, callback, state, false, scan);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn callback(
    _index: pg_sys::Relation,
    tid: pg_sys::ItemPointer,
    values: *mut pg_sys::Datum,
    is_null: *mut bool,
    _alive: bool,
    state: *mut c_void,
) {
    // SAFETY: PostgreSQL passes the row's TID and a value per column; the state is the closure that `for_each_row` passed.
    unsafe {
        if !*is_null {
            (*state.cast::<Visit<'_>>())(tid.cast::<HeapTid>().read_unaligned(), *values);
        }
    }
}
