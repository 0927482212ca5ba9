//! The addresses of the builder's name.
//!
//! The system's resolver cannot be interrupted, so it runs in a thread, and the statement waits for the thread as for any socket.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::{threads, wait};

/// Looks a name up. Ends the statement if it was cancelled; the thread then ends when the resolver gives up.
pub(crate) fn resolve(host: &str, port: u16, timeout: Option<Duration>) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // The thread closes its end when it has the answer.
    let (ours, theirs) = UnixStream::pair()?;
    let name = (host.to_owned(), port);
    let thread = threads::without_signals(|| {
        thread::Builder::new().name("resolver".into()).spawn(move || {
            let _theirs = theirs;
            name.to_socket_addrs().map(Iterator::collect)
        })
    })?;
    let started = Instant::now();
    ours.set_nonblocking(true)?;
    while (&ours).read(&mut [0]).is_err() {
        if timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
            return Err(ErrorKind::TimedOut.into());
        }
        wait::for_socket(ours.as_raw_fd(), false, wait::TICK);
    }
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the resolver failed")))
}
