//! A TCP connection to the builder, made without blocking.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use pgrx::prelude::*;
use protocol::MAGIC;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use crate::failure::{Failure, IN_DATABASE, sentence};
use crate::resolve::resolve;
use crate::settings::Settings;
use crate::wait;

/// The time limit for finding out whether a server speaks TLS.
const PROBE: Duration = Duration::from_secs(1);

/// Connects to the first address of the builder that answers.
pub(crate) fn connect(settings: &Settings, peer: &str) -> Result<TcpStream, Failure> {
    let failed = |detail: String| {
        Failure::new(
            PgSqlErrorCode::ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
            format!("could not connect to external indexing server on {peer}"),
        )
        .detail(sentence(&detail))
        .hint(format!(
            "Start it with \"lantern-index serve\", or check hnsw.external_index_host and hnsw.external_index_port. {IN_DATABASE}"
        ))
    };
    let addresses = resolve(&settings.host, settings.port, settings.connect_timeout)
        .map_err(|error| failed(format!("cannot resolve \"{}\": {error}", settings.host)))?;
    let mut last = failed(format!("\"{}\" has no address", settings.host));
    for address in addresses {
        match connect_to(address, settings.connect_timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = failed(format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// Whether a server that sends no greeting speaks TLS: it then answers an invalid handshake with an alert.
pub(crate) fn speaks_tls(address: SocketAddr) -> bool {
    const ALERT: [u8; 2] = [21, 3];
    let ask = || -> io::Result<[u8; 2]> {
        let started = Instant::now();
        let mut socket = connect_to(address, Some(PROBE))?;
        // An incomplete message: a slow builder without TLS waits for the rest of it.
        socket.write_all(&[&MAGIC[..], &[0; 4]].concat())?;
        let mut answer = [0; 2];
        loop {
            match socket.peek(&mut answer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(2..) => break,
                Ok(1) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if started.elapsed() > PROBE {
                return Err(ErrorKind::TimedOut.into());
            }
            wait::for_socket(socket.as_raw_fd(), false, wait::TICK);
        }
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer == ALERT)
}

fn connect_to(address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&keepalive)?;
    let started = Instant::now();
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => return Ok(socket.into()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    loop {
        wait::for_connect(socket.as_raw_fd(), wait::TICK);
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if socket.peer_addr().is_ok() {
            return Ok(socket.into());
        }
        if timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}
