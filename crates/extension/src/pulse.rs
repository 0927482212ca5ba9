//! Looks after the connection while PostgreSQL scans the table.
//!
//! PostgreSQL says nothing of rows that the predicate of an index rejects, and one row of an expression index may take minutes.
//! Meanwhile the builder must hear that we are alive, and we must notice if it is not. A thread does that: it moves what can be
//! moved without waiting, whenever the scan does not use the session itself. It calls nothing of PostgreSQL; if the builder is
//! lost it cancels the statement as PostgreSQL's own timeouts do, by a signal to the process.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ScopedJoinHandle};

use pgrx::prelude::*;
use rustix::process::{Signal, getpid, kill_process};

use crate::failure::Failure;
use crate::session::Session;
use crate::{threads, wait};

/// A session that is shared with the thread.
pub(crate) struct Shared<'a> {
    session: Mutex<&'a mut Session>,
    /// Why the thread gave up.
    lost: Mutex<Option<Failure>>,
    over: AtomicBool,
    cancelled: AtomicBool,
}

/// Runs a scan, and the thread beside it.
pub(crate) fn beside<T>(
    session: &mut Session,
    scan: impl FnOnce(&Shared<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let shared = Shared {
        session: Mutex::new(session),
        lost: Mutex::new(None),
        over: AtomicBool::new(false),
        cancelled: AtomicBool::new(false),
    };
    let scanned = thread::scope(|scope| {
        let thread = threads::without_signals(|| {
            thread::Builder::new().name("heartbeat".into()).spawn_scoped(scope, || shared.beat())
        });
        let thread = thread.map_err(|error| {
            Failure::new(PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES, format!("could not start a thread: {error}"))
        })?;
        // Ends the thread however the scan ends. Only a FATAL error does not come by: then the process ends, and the thread with it.
        let _end = End { shared: &shared, thread: Some(thread) };
        PgTryBuilder::new(AssertUnwindSafe(|| scan(&shared)))
            .catch_when(PgSqlErrorCode::ERRCODE_QUERY_CANCELED, |cause| match shared.take_lost() {
                Some(failure) => Err(failure),
                None => cause.rethrow(),
            })
            .execute()
    });
    // The scan's own failure comes first: it may be what the builder said, and the thread have found the connection closed since.
    match shared.take_lost() {
        Some(failure) if scanned.is_ok() => Err(failure),
        _ => scanned,
    }
}

impl<'a> Shared<'a> {
    /// The session, for as long as the guard lives; fails if the builder was lost meanwhile.
    pub(crate) fn session(&self) -> Result<MutexGuard<'_, &'a mut Session>, Failure> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match self.take_lost() {
            Some(failure) => Err(failure),
            None => Ok(session),
        }
    }

    fn take_lost(&self) -> Option<Failure> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The thread.
    fn beat(&self) {
        while !self.over.load(Ordering::Acquire) {
            let beaten = match self.session.try_lock() {
                Ok(mut session) => session.beat().map_err(|failure| {
                    // Under the lock of the session: the scan finds the one or the other.
                    *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                }),
                // The scan is sending.
                Err(TryLockError::WouldBlock) => Ok(()),
                // The scan failed while it was sending.
                Err(TryLockError::Poisoned(_)) => return,
            };
            if beaten.is_err() {
                self.cancelled.store(true, Ordering::Release);
                // This very process exists, and may be signalled by itself.
                let _ = kill_process(getpid(), Signal::INT);
                return;
            }
            thread::park_timeout(wait::TICK);
        }
    }
}

struct End<'scope, 'a> {
    shared: &'scope Shared<'a>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        if self.shared.cancelled.load(Ordering::Acquire) {
            // A signal on its way is handled at the end of any system call. It has said what it had to: the next statement, or what
            // a PL/pgSQL block does with the error, is not to be cancelled as well.
            thread::yield_now();
            // SAFETY: PostgreSQL's own flag, which only this thread and its signal handlers write.
            unsafe { (&raw mut pg_sys::QueryCancelPending).write_volatile(0) };
        }
    }
}
