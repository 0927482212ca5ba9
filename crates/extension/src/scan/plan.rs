//! How many parallel workers PostgreSQL would give a build.

use pgrx::prelude::*;

use super::size::{blocks, blocks_with_toast};

/// The workers that PostgreSQL plans for an index, by `max_parallel_maintenance_workers` and the table's `parallel_workers` or its size;
/// none for temporary tables or expressions that are not parallel safe.
///
/// Two things differ from other index builds. TOAST values are read, so they count towards the table's size. And workers do not sort, so
/// `maintenance_work_mem` need not be divided among them.
///
/// # Safety
/// The relations must be open and locked as for `ambuild`.
pub(super) unsafe fn workers(heap: pg_sys::Relation, index: pg_sys::Relation) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe {
        let _overridden = Overridden::new(blocks(heap).into(), blocks_with_toast(heap));
        pg_sys::plan_create_index_workers((*heap).rd_id, (*index).rd_id)
    }
}

/// Overrides PostgreSQL's settings for the plan, and restores them on drop.
struct Overridden {
    threshold: i32,
    memory: i32,
}

impl Overridden {
    /// PostgreSQL compares `min_parallel_table_scan_size` with the table's `own` blocks. Scales it by own / all: `all` includes TOAST.
    fn new(own: u64, all: u64) -> Self {
        // SAFETY: PostgreSQL's own variables, which only this thread uses.
        unsafe {
            let before = Self { threshold: pg_sys::min_parallel_table_scan_size, memory: pg_sys::maintenance_work_mem };
            let scaled = u64::try_from(before.threshold).unwrap_or_default() * own / all.max(1);
            pg_sys::min_parallel_table_scan_size = i32::try_from(scaled).unwrap_or(before.threshold);
            pg_sys::maintenance_work_mem = i32::MAX;
            before
        }
    }
}

impl Drop for Overridden {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            pg_sys::min_parallel_table_scan_size = self.threshold;
            pg_sys::maintenance_work_mem = self.memory;
        }
    }
}
