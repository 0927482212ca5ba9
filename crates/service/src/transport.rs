use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use crate::certificate::subject_name;

/// Keepalive detects a vanished host even if nothing is being sent, but not before the `patience` of [`set_options`]: the system does
/// not distinguish a vanished host from one that does not read for a while.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Read buffer beneath TLS, which by itself would read 4 KiB at a time.
const READ_BYTES: usize = 128 << 10;

/// The stream beneath TLS.
pub type Buffered = BufReader<TcpStream>;

/// Makes a connection ready for TLS.
#[must_use]
pub fn buffered(stream: TcpStream) -> Buffered {
    BufReader::with_capacity(READ_BYTES, stream)
}

/// A connection, encrypted or not.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// From now on, closing the connection in any way, even by the process' end, sends a reset instead of an end of the stream.
    ///
    /// # Errors
    /// What the system says.
    fn reset_when_closed(&self) -> io::Result<()>;

    /// The name of the peer's verified certificate, if it has one.
    fn peer_name(&self) -> Option<String> {
        None
    }
}

impl Transport for TcpStream {
    fn reset_when_closed(&self) -> io::Result<()> {
        SockRef::from(self).set_linger(Some(Duration::ZERO))
    }
}

impl Transport for server::TlsStream<Buffered> {
    fn reset_when_closed(&self) -> io::Result<()> {
        self.get_ref().0.get_ref().reset_when_closed()
    }

    fn peer_name(&self) -> Option<String> {
        subject_name(self.get_ref().1.peer_certificates()?.first()?)
    }
}

impl Transport for client::TlsStream<Buffered> {
    fn reset_when_closed(&self) -> io::Result<()> {
        self.get_ref().0.get_ref().reset_when_closed()
    }
}

/// Sets the options of a daemon's connections: small messages are sent at once, and a vanished host is detected. Sent data may be
/// unacknowledged, or unread with a full window, for as long as `patience`.
///
/// # Errors
/// What the system says.
pub fn set_options(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    // Keepalive does not probe while sent data is unacknowledged.
    socket.set_tcp_user_timeout(Some(patience))
}
