//! Wakes a thread that waits for sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

pub(crate) struct Bell {
    rope: UnixStream,
    clapper: UnixStream,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let (rope, clapper) = UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        clapper.set_nonblocking(true)?;
        Ok(Self { rope, clapper })
    }

    /// What waits for it now or later goes on. Never waits itself.
    pub(crate) fn ring(&self) {
        // No room means that it rings already.
        let _ = (&self.rope).write(&[1]);
    }

    /// Ends the ringing. Whoever waits looks around after this, not before.
    pub(crate) fn hush(&self) {
        let mut bytes = [0; 64];
        while (&self.clapper).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}

impl AsFd for Bell {
    /// Can be read while it rings.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.clapper.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.clapper.as_raw_fd()
    }
}
