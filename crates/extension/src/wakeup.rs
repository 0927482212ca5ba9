//! A pair of file descriptors by which two threads wake each other from a wait on sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

/// One end of the pair.
pub(crate) struct Wakeup(UnixStream);

impl Wakeup {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        one.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok((Self(one), Self(other)))
    }

    /// Wakes whoever waits on the other end, now or later. Never blocks.
    pub(crate) fn wake(&self) {
        // A full buffer means that a wake-up is pending already.
        let _ = (&self.0).write(&[1]);
    }

    /// Resets this end. Check the awaited condition after this, not before.
    pub(crate) fn reset(&self) {
        let mut bytes = [0; 64];
        while (&self.0).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}

impl AsFd for Wakeup {
    /// Readable from a wake-up until the next reset.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Wakeup {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
