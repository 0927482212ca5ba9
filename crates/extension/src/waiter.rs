//! How the backend and its thread wait for the builder.

use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::failure::Failure;
use crate::link::Link;
use crate::wait;

pub(crate) enum Waiter {
    /// The backend: on its latch.
    Backend,
    /// The thread, until the backend no longer needs it.
    Thread(Arc<Link>),
}

impl Waiter {
    /// Waits briefly until the socket is readable (or writable, with `write`), and no longer than `at_most`.
    pub(crate) fn wait(&self, socket: &TcpStream, write: bool, at_most: Duration) -> Result<(), Failure> {
        match self {
            Self::Backend => wait::for_socket(socket.as_raw_fd(), write, at_most),
            Self::Thread(link) => link.wait_in_thread_or(socket.as_fd(), write, at_most)?,
        }
        Ok(())
    }

    /// Fails if the statement was cancelled.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Backend => wait::interrupts(),
            Self::Thread(link) => link.check()?,
        }
        Ok(())
    }
}
