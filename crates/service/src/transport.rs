use std::io;
use std::time::Duration;

use protocol::Greeting;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use crate::certificate::subject_name;

/// Keepalive detects a vanished host even if no data is sent, but not before the `patience` of [`set_options`]: the system does
/// not distinguish a vanished host from one that does not read for a while.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// The read buffer beneath TLS, which would read 4 KiB at a time without it.
const READ_BYTES: usize = 128 << 10;

/// The stream beneath TLS.
type Buffered = BufReader<TcpStream>;

/// Wraps a connection for TLS.
#[must_use]
pub fn buffered(stream: TcpStream) -> Buffered {
    BufReader::with_capacity(READ_BYTES, stream)
}

/// A connection, encrypted or not.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sync {
    /// Makes every later close of the connection, including one by the end of the process, send a reset instead of an end of
    /// stream.
    ///
    /// # Errors
    /// The error of the operating system.
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

/// Sends the greeting and reads the client's choice of a protocol. `None`: the client closed the connection, as port scanners and health
/// checks do.
///
/// # Errors
/// The connection is broken.
pub async fn greet<S>(stream: &mut S, greeting: Greeting) -> io::Result<Option<[u8; 4]>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // One write, since Lantern's clients do not handle short reads.
    stream.write_all(&greeting.to_bytes()).await?;
    stream.flush().await?;
    let mut choice = [0; 4];
    match stream.read_exact(&mut choice).await {
        Ok(_) => Ok(Some(choice)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets the socket options of a daemon's connections: small messages are sent at once, and a vanished host is detected.
/// `patience` is how long sent data may stay unacknowledged, or unread while the window is full.
///
/// # Errors
/// The error of the operating system.
pub fn set_options(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    // Keepalive does not probe while sent data is unacknowledged.
    socket.set_tcp_user_timeout(Some(patience))
}
