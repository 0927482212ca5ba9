//! The size of a table.

use pgrx::prelude::*;

/// The planner's estimate of a table's rows. It ignores an index's predicate. Of a table that was never analysed, the planner takes values to have 32
/// bytes: it has no more of `value_len` bytes than its files have room for.
///
/// # Safety
/// `heap` must be an open table.
pub(crate) unsafe fn estimate_rows(heap: pg_sys::Relation, value_len: Option<usize>) -> u64 {
    let (mut pages, mut tuples, mut visible) = (0, 0.0, 0.0);
    // SAFETY: as promised by the caller; no widths are asked for.
    unsafe {
        pg_sys::estimate_rel_size(heap, std::ptr::null_mut(), &raw mut pages, &raw mut tuples, &raw mut visible);
        let Some(value_len) = value_len.filter(|_| (*(*heap).rd_rel).reltuples <= 0.0) else { return tuples as u64 };
        let bytes = blocks_with_toast(heap) * u64::from(pg_sys::BLCKSZ);
        (tuples as u64).min(bytes / value_len.max(1) as u64)
    }
}

/// # Safety
/// The relation must be open.
pub(crate) unsafe fn blocks(relation: pg_sys::Relation) -> u32 {
    // SAFETY: as promised by the caller.
    unsafe { pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM) }
}

/// The blocks of a table and of its large values.
///
/// # Safety
/// The table must be open.
pub(super) unsafe fn blocks_with_toast(table: pg_sys::Relation) -> u64 {
    const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: as promised by the caller; the table of large values lives as long as the table.
    unsafe {
        let own = u64::from(blocks(table));
        let toast = (*(*table).rd_rel).reltoastrelid;
        if toast == pg_sys::Oid::INVALID {
            return own;
        }
        let toast = pg_sys::table_open(toast, LOCK);
        let blocks = blocks(toast);
        pg_sys::table_close(toast, LOCK);
        own + u64::from(blocks)
    }
}
