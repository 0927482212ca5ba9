//! The state that the backend and its thread share, and how each waits for the other.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgrx::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};

use crate::failure::Failure;
use crate::wait;
use crate::wakeup::Wakeup;

pub(crate) struct Link {
    /// The longest wait before either re-checks its conditions.
    tick: Duration,
    /// The thread waits on its own end, and wakes the backend through it; the backend does the reverse.
    thread: Wakeup,
    backend: Wakeup,
    thread_waits: AtomicBool,
    backend_waits: AtomicBool,
    stopped: AtomicBool,
    ended: AtomicBool,
    cancelled: AtomicBool,
}

impl Link {
    pub(crate) fn new(tick: Duration) -> Result<Self, Failure> {
        let (thread, backend) = Wakeup::pair().map_err(|error| {
            let message = format!("could not make a pair of sockets: {error}");
            Failure::new(PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES, message)
        })?;
        let no = || AtomicBool::new(false);
        Ok(Self {
            tick,
            thread,
            backend,
            thread_waits: no(),
            backend_waits: no(),
            stopped: no(),
            ended: no(),
            cancelled: no(),
        })
    }

    pub(crate) fn wake_thread(&self) {
        if self.thread_waits() {
            self.backend.wake();
        }
    }

    pub(crate) fn wake_backend(&self) {
        if self.backend_waits.load(Ordering::SeqCst) {
            self.thread.wake();
        }
    }

    /// Backend: whether the thread waits to be woken.
    pub(crate) fn thread_waits(&self) -> bool {
        self.thread_waits.load(Ordering::SeqCst)
    }

    /// Backend: whether the thread has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Backend: waits until it is woken, for a short while at most. Ends the statement if it was cancelled.
    ///
    /// A two-phase wait: the first call announces the wait; re-check the condition, then call again to block. So the other side writes to
    /// the socket only if this one waits. Nothing else may wait on the same end in between.
    pub(crate) fn wait(&self) {
        if !self.backend_waits.swap(true, Ordering::SeqCst) {
            return;
        }
        wait::for_socket(self.backend.as_raw_fd(), false, self.tick);
        self.backend.reset();
        self.backend_waits.store(false, Ordering::SeqCst);
    }

    /// Thread: fails when the backend no longer needs it.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.stopped.load(Ordering::SeqCst) {
            return Err(Failure::new(PgSqlErrorCode::ERRCODE_QUERY_CANCELED, "the statement has ended"));
        }
        Ok(())
    }

    /// Thread: waits until it is woken, for a short while at most; in two calls, as [`wait`](Self::wait).
    pub(crate) fn wait_in_thread(&self) -> Result<(), Failure> {
        self.wait_on(&mut [self.wakeup()], self.tick)
    }

    /// Thread: like `wait_in_thread`, or until the socket can be read (or written, if wanted), and at most for `at_most`.
    pub(crate) fn wait_in_thread_or(
        &self,
        socket: BorrowedFd<'_>,
        write: bool,
        at_most: Duration,
    ) -> Result<(), Failure> {
        let write = if write { PollFlags::OUT } else { PollFlags::empty() };
        self.wait_on(
            &mut [self.wakeup(), PollFd::from_borrowed_fd(socket, PollFlags::IN | write)],
            self.tick.min(at_most),
        )
    }

    fn wakeup(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.thread.as_fd(), PollFlags::IN)
    }

    fn wait_on(&self, descriptors: &mut [PollFd<'_>], at_most: Duration) -> Result<(), Failure> {
        if self.thread_waits.swap(true, Ordering::SeqCst) {
            // Reading and writing will report any error of the socket.
            let _ = poll(descriptors, Timespec::try_from(at_most).ok().as_ref());
            self.thread.reset();
            self.thread_waits.store(false, Ordering::SeqCst);
        }
        self.check()
    }

    /// Thread: announces its end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.wake_backend();
    }

    /// Backend: asks the thread to end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_thread();
    }

    /// Thread: cancels the statement.
    pub(crate) fn cancel(&self) {
        if self.check().is_err() {
            return;
        }
        self.cancelled.store(true, Ordering::Release);
        // A process can always signal itself.
        let _ = kill_process(getpid(), Signal::INT);
    }

    /// Backend, after the thread has ended: whether the thread cancelled the statement.
    pub(crate) fn has_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}
