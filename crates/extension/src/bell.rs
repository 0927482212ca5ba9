//! Wakes a thread that waits for sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

/// One of two, each of which rings the other.
pub(crate) struct Bell(UnixStream);

impl Bell {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        one.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok((Self(one), Self(other)))
    }

    /// What waits for the other one, now or later, goes on. Never waits itself.
    pub(crate) fn ring(&self) {
        // No room means that it rings already.
        let _ = (&self.0).write(&[1]);
    }

    /// Ends the ringing of this one. Whoever waits looks around after this, not before.
    pub(crate) fn hush(&self) {
        let mut bytes = [0; 64];
        while (&self.0).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}

impl AsFd for Bell {
    /// Can be read while it rings.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
