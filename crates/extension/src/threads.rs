//! Threads in a backend, which PostgreSQL does not know about.
//!
//! They call no function of PostgreSQL, and never run its signal handlers.

use std::io;
use std::mem::MaybeUninit;

/// Starts threads with all signals blocked, which they inherit: PostgreSQL's handlers must run in its own thread.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read.
    unsafe {
        let mut all = MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: the mask that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}
