use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::spawner::Place;
use crate::tls::BuilderTls;

/// A host that vanished is noticed after about two minutes, also when nothing is being sent.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// How long a connection to a builder may take.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Sets what every connection of a router needs.
pub(crate) fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Connects to a builder.
pub(crate) async fn connect(place: &Place, tls: Option<&BuilderTls>) -> io::Result<Box<dyn Stream>> {
    let connect = async {
        let stream = TcpStream::connect((place.host(), place.port)).await?;
        set_options(&stream)?;
        let Some(tls) = tls else { return Ok(Box::new(stream) as Box<dyn Stream>) };
        let stream = TlsConnector::from(tls.config.clone()).connect(tls.name.clone(), stream).await?;
        Ok(Box::new(stream) as Box<dyn Stream>)
    };
    timeout(CONNECT, connect).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
