//! A parallel worker: a PostgreSQL process that reads its share of the table. It has no thread and no connection to a builder.

use std::sync::atomic::Ordering;

use pgrx::prelude::*;

use super::batches::{Batches, Filling};
use super::parallel::{LAYOUT, Shared, key};
use super::rows::{Reader, Relations, Rows};
use crate::column::Column;
use crate::connection_thread::Gone;
use crate::failure::{Failure, context, or_raise};
use crate::options;
use crate::raised;
use crate::wait;

/// Milliseconds after which a waiting worker polls for an empty batch: a backend that evaluates an expression does not wake it.
const LOOK: i64 = 10;

struct Worker<'a> {
    shared: *mut Shared,
    batches: Batches<'a>,
}

impl Reader for Worker<'_> {
    fn empty_batch(&self) -> Result<Filling<'_>, Gone> {
        if let Some(batch) = self.batches.empty() {
            return Ok(batch);
        }
        // SAFETY: the backend has made it, and keeps it while there are workers. An error ends the wait.
        unsafe {
            let room = &raw mut (*self.shared).room;
            (*self.shared).waiting.fetch_add(1, Ordering::SeqCst);
            pg_sys::ConditionVariablePrepareToSleep(room);
            let batch = loop {
                if let Some(batch) = self.batches.empty() {
                    break batch;
                }
                pg_sys::ConditionVariableTimedSleep(room, LOOK, wait::wait_event());
            };
            pg_sys::ConditionVariableCancelSleep();
            (*self.shared).waiting.fetch_sub(1, Ordering::SeqCst);
            Ok(batch)
        }
    }

    fn has_filled(&self) {
        // SAFETY: the backend waits for its workers, so its latch is there.
        unsafe { pg_sys::SetLatch((*self.shared).backend) };
    }

    fn pass_on_wakeups(&self) {}
}

/// The table and the index, and the locks on them.
#[derive(Clone, Copy)]
#[repr(C)]
struct Opened {
    relations: Relations,
    locks: [pg_sys::LOCKMODE; 2],
}

/// The entry point of a worker.
///
/// Not guarded, and with nothing to drop, so that errors of users' functions pass through unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lantern_index_scan_worker(
    _segment: *mut pg_sys::dsm_segment,
    toc: *mut pg_sys::shm_toc,
) {
    // SAFETY: PostgreSQL passes the table of contents that the backend has written.
    unsafe {
        let opened = open(toc);
        context::of_index(opened.relations.index, || read(toc, opened.relations));
        raised::raise_kept();
        close(opened);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn open(toc: *mut pg_sys::shm_toc) -> Opened {
    // SAFETY: as for `lantern_index_scan_worker`.
    unsafe {
        let query = pg_sys::shm_toc_lookup(toc, key::QUERY, false).cast();
        pg_sys::debug_query_string = query;
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, query);
        let shared = pg_sys::shm_toc_lookup(toc, key::SHARED, false).cast::<Shared>();
        if (*shared).layout != LAYOUT {
            let code = PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
            Failure::new(code, "the library lantern_index was replaced while the session had it loaded")
                .hint("Reconnect, and run the statement again.")
                .raise();
        }
        // The same locks as the backend's: the worker is in its lock group.
        let locks = match (*shared).concurrent {
            true => [pg_sys::ShareUpdateExclusiveLock, pg_sys::RowExclusiveLock],
            false => [pg_sys::ShareLock, pg_sys::AccessExclusiveLock],
        };
        let locks = locks.map(|lock| lock as pg_sys::LOCKMODE);
        let heap = pg_sys::table_open((*shared).heap, locks[0]);
        let index = pg_sys::index_open((*shared).index, locks[1]);
        let info = pg_sys::BuildIndexInfo(index);
        (*info).ii_Concurrent = (*shared).concurrent;
        let scan = pg_sys::shm_toc_lookup(toc, key::SCAN, false);
        let scan = pg_sys::table_beginscan_parallel(heap, scan.cast());
        Opened { relations: Relations { heap, index, info, scan }, locks }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn close(opened: Opened) {
    let Opened { relations: Relations { heap, index, .. }, locks } = opened;
    // SAFETY: opened above.
    unsafe {
        pg_sys::index_close(index, locks[1]);
        pg_sys::table_close(heap, locks[0]);
    }
}

/// Reads rows; an error is kept.
#[pg_guard]
unsafe extern "C-unwind" fn read(toc: *mut pg_sys::shm_toc, relations: Relations) {
    // SAFETY: as for `lantern_index_scan_worker`; the relations are open.
    raised::until_raised(|| unsafe {
        let find = |key| pg_sys::shm_toc_lookup(toc, key, false);
        let shared = find(key::SHARED).cast::<Shared>();
        context::adopt((*shared).build);
        let batches = Batches::attach(find(key::BATCHES).cast());
        let column = or_raise(Column::of(relations.index, options::of(relations.index)));
        pg_sys::InstrStartParallelQuery();
        let found = Rows::read(&Worker { shared, batches }, &column, relations, false);
        let worker = pg_sys::ParallelWorkerNumber as usize;
        let buffers = find(key::BUFFER_USAGE).cast::<pg_sys::BufferUsage>();
        let wal = find(key::WAL_USAGE).cast::<pg_sys::WalUsage>();
        pg_sys::InstrEndParallelQuery(buffers.add(worker), wal.add(worker));
        (*shared).add(&found, (*relations.info).ii_BrokenHotChain);
    });
}
