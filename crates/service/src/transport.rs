use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use crate::certificate::subject_name;

/// A host that vanished is noticed also when nothing is being sent: by keepalive, but not before the patience that [`set_options`] is given,
/// since the system does not tell a vanished host from one that does not read for a while.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Room for a read beneath TLS, which would ask the system for 4 KiB at a time.
const READ_BYTES: usize = 128 << 10;

/// What lies beneath TLS.
pub type Buffered = BufReader<TcpStream>;

/// Makes a connection ready for TLS.
#[must_use]
pub fn buffered(stream: TcpStream) -> Buffered {
    BufReader::with_capacity(READ_BYTES, stream)
}

/// A connection, encrypted or not.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// Makes the end of this process' part, wanted or not, a reset and not an end of the stream, from now on.
    ///
    /// # Errors
    /// What the system says.
    fn reset_when_closed(&self) -> io::Result<()>;

    /// The name of the certificate that the other side has shown, if it has shown one that was verified.
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

/// Sets what every connection of a daemon needs: small messages go at once, and a host that vanished is noticed. What was sent may be
/// unacknowledged, or unread so that no more can be sent, for as long as `patience`.
///
/// # Errors
/// What the system says.
pub fn set_options(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    // Keepalive does not look while something is on its way that nobody acknowledges.
    socket.set_tcp_user_timeout(Some(patience))
}
