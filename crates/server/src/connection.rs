use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use service::Closed;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::server::Shared;
use crate::session;

/// A host that vanished is noticed after about two minutes, also when nothing is being sent.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// A connection, encrypted or not.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// Makes the end of this process' part, wanted or not, a reset and not an end of the stream, from now on.
    fn reset_when_closed(&self) -> io::Result<()>;
}

impl Transport for TcpStream {
    fn reset_when_closed(&self) -> io::Result<()> {
        SockRef::from(self).set_linger(Some(Duration::ZERO))
    }
}

impl Transport for TlsStream<TcpStream> {
    fn reset_when_closed(&self) -> io::Result<()> {
        self.get_ref().0.reset_when_closed()
    }
}

/// Serves one connection until it is closed.
pub(crate) async fn serve(stream: TcpStream, shared: &Arc<Shared>, id: u64, peer: SocketAddr) {
    if let Err(error) = set_options(&stream, shared.config.idle_timeout) {
        tracing::debug!(%error, "cannot set socket options");
    }
    let Some(tls) = shared.config.tls.clone() else {
        return session::serve(stream, shared, id, peer).await;
    };
    let limit = shared.config.handshake_timeout;
    match timeout(limit, TlsAcceptor::from(tls.config()).accept(stream)).await {
        Ok(Ok(stream)) => session::serve(stream, shared, id, peer).await,
        Ok(Err(error)) => shared.activity.closed(Closed::Tls, format_args!("no TLS handshake: {error}")),
        Err(_) => {
            let seconds = limit.as_secs_f64();
            shared.activity.closed(Closed::Timeout, format_args!("no TLS handshake within {seconds} s"));
        }
    }
}

fn set_options(stream: &TcpStream, idle_timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Keepalive does not look while something is on its way that nobody acknowledges.
    SockRef::from(stream).set_tcp_user_timeout(Some(idle_timeout))?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
