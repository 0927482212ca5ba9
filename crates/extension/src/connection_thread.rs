//! A thread that handles the connection while PostgreSQL reads the table, or reads or writes the index.
//!
//! Encryption, checksums and page verification run beside the scan. Heartbeats go both ways even if PostgreSQL does not call our callback
//! for minutes: it skips rows that an index predicate rejects, and one row of an expression index may take long. The thread calls no
//! function of PostgreSQL. If it fails, it cancels the statement by a signal to the process, as PostgreSQL's own timeouts do; an
//! expression that catches the cancel runs on until the next batch.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use pgrx::prelude::*;

use crate::failure::Failure;
use crate::link::Link;
use crate::session::Session;
use crate::threads;

/// The thread has failed; its failure becomes the statement's error.
pub(crate) struct Gone;

thread_local! {
    /// The link to the running thread.
    static CURRENT: Cell<*const Link> = const { Cell::new(null()) };
}

/// Waits for the thread to end after a FATAL error, which runs no destructors, before memory that the thread uses is freed.
pub(crate) fn end_after_fatal_error() {
    // SAFETY: while there is a thread, the frame of `run_both` is there.
    if let Some(link) = unsafe { CURRENT.get().as_ref() } {
        link.stop();
        while !link.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs `in_thread` in a thread that owns the session, and `in_backend` beside it. While either waits, it re-checks its conditions each
/// `tick`. Returns the results of `in_backend` and `in_thread`.
pub(crate) fn run_both<T, A: Send>(
    session: &mut Session,
    tick: Duration,
    in_thread: impl FnOnce(&mut Session, &Link) -> Result<A, Failure> + Send,
    in_backend: impl FnOnce(&Link) -> Result<T, Gone>,
) -> Result<(T, A), Failure> {
    let link = Arc::new(Link::new(tick)?);
    let result = Mutex::new(None);
    let worked = thread::scope(|scope| {
        let (link, result) = (&link, &result);
        let run = move || {
            let done = catch_unwind(AssertUnwindSafe(|| session.lend_to(link, |session| in_thread(session, link))));
            let done = done.unwrap_or_else(|_| Err(defect()));
            let failed = done.is_err();
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            if failed {
                link.cancel();
            }
            link.end();
        };
        let thread =
            threads::without_signals(|| thread::Builder::new().name("connection".into()).spawn_scoped(scope, run));
        let thread = thread.map_err(|error| {
            Failure::new(PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES, format!("could not start a thread: {error}"))
        })?;
        // Links nest if an expression of an external build calls advise().
        let before = CURRENT.replace(Arc::as_ptr(link));
        // Joins the thread however `in_backend` ends, except after a FATAL error, which skips destructors and ends the process.
        let _end = End { link, thread: Some(thread), before };
        let worked = PgTryBuilder::new(AssertUnwindSafe(|| {
            let worked = in_backend(link);
            while worked.is_ok() && !link.is_over() {
                link.wait();
            }
            worked
        }));
        let has_failed = || matches!(*result.lock().unwrap_or_else(PoisonError::into_inner), Some(Err(_)));
        let worked = worked.catch_when(PgSqlErrorCode::ERRCODE_QUERY_CANCELED, |cause| {
            if has_failed() { Err(Gone) } else { cause.rethrow() }
        });
        Ok(worked.execute())
    })?;
    match (result.into_inner().unwrap_or_else(PoisonError::into_inner), worked) {
        (Some(Err(failure)), _) => Err(failure),
        (Some(Ok(done)), Ok(worked)) => Ok((worked, done)),
        _ => Err(defect()),
    }
}

/// The backend: hands something over to the thread, and waits while the channel is full.
pub(crate) fn hand_over<T>(link: &Link, channel: &SyncSender<T>, mut what: T) -> Result<(), Gone> {
    loop {
        what = match channel.try_send(what) {
            Ok(()) => {
                link.wake_thread();
                return Ok(());
            }
            Err(TrySendError::Full(what) | TrySendError::Disconnected(what)) => what,
        };
        if link.is_over() {
            return Err(Gone);
        }
        link.wait();
    }
}

/// The thread: sends what the backend hands over, and keeps the connection alive meanwhile, until the backend has dropped its end of the
/// channel.
pub(crate) fn send_all<T>(
    session: &mut Session,
    link: &Link,
    channel: &Receiver<T>,
    mut send: impl FnMut(&mut Session, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        match channel.try_recv() {
            Ok(what) => {
                link.wake_backend();
                send(session, what)?;
            }
            Err(TryRecvError::Empty) => session.idle()?,
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

fn defect() -> Failure {
    Failure::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, "the thread that speaks with the builder has failed")
}

struct End<'scope, 'a> {
    link: &'a Link,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
    before: *const Link,
}

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.link.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        CURRENT.set(self.before);
        if self.link.has_cancelled() {
            // The thread's signal may still be pending, and is handled at the end of any system call. It must not cancel the next
            // statement too, nor the exception handler of a PL/pgSQL block. A user's cancel within these milliseconds is cleared with it: the
            // two look alike, and the statement fails anyway, with the thread's error.
            thread::yield_now();
            // SAFETY: PostgreSQL's own flag, which only this thread and its signal handlers write.
            unsafe { (&raw mut pg_sys::QueryCancelPending).write_volatile(0) };
        }
    }
}
