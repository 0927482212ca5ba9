//! Waits of a backend: for a socket, its latch and interrupts.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use crate::raised;

/// The longest wait between checks.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Waits until the socket is readable (or writable, with `write`) or the time is over. Ends the statement if it was cancelled.
pub(crate) fn for_socket(socket: RawFd, write: bool, at_most: Duration) {
    let write = if write { pg_sys::WL_SOCKET_WRITEABLE } else { 0 };
    wait(socket, pg_sys::WL_SOCKET_READABLE | write, at_most);
}

/// Pauses for a time.
pub(crate) fn pause(pause: Duration) {
    let started = Instant::now();
    while let Some(left) = pause.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        wait(NO_SOCKET, 0, left);
    }
}

/// Waits until a connection was made or failed, or the time is over.
pub(crate) fn for_connect(socket: RawFd, at_most: Duration) {
    wait(socket, pg_sys::WL_SOCKET_WRITEABLE, at_most);
}

/// PostgreSQL's `PGINVALID_SOCKET`.
const NO_SOCKET: RawFd = -1;

fn wait(socket: RawFd, events: u32, at_most: Duration) {
    let events = events | pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH | pg_sys::WL_TIMEOUT;
    // SAFETY: the socket is open while its owner waits for it, and no lock is held here.
    unsafe {
        // Rounded up: a wait of 0 ms would be none.
        let timeout = at_most.min(TICK).as_millis() as std::ffi::c_long + 1;
        let found = pg_sys::WaitLatchOrSocket(pg_sys::MyLatch, events as i32, socket, timeout, wait_event());
        if found as u32 & pg_sys::WL_LATCH_SET != 0 {
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
    }
    interrupts();
}

/// Ends the statement if it was cancelled or a parallel worker has failed: with the worker's error as it was raised.
pub(crate) fn interrupts() {
    unsafe extern "C-unwind" {
        /// PostgreSQL's own, without the guard that `pg_sys` adds.
        #[link_name = "ProcessInterrupts"]
        fn process();
    }
    // SAFETY: only this thread and its signal handlers write the flag; PostgreSQL calls the function, too, when it is set.
    unsafe {
        if (&raw const pg_sys::InterruptPending).read_volatile() != 0 {
            raised::keep_error(|| process());
        }
    }
}

/// The wait event in `pg_stat_activity`: up to PostgreSQL 16 the one that all extensions share.
#[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16"))]
pub(crate) fn wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// The wait event in `pg_stat_activity`.
#[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16")))]
pub(crate) fn wait_event() -> u32 {
    thread_local! {
        static EVENT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    if EVENT.get() == 0 {
        // SAFETY: a backend is connected to shared memory, where the name is kept; the same name gets the same number.
        EVENT.set(unsafe { pg_sys::WaitEventExtensionNew(c"ExternalIndexBuilder".as_ptr()) });
    }
    EVENT.get()
}
