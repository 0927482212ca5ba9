use std::net::SocketAddr;
use std::sync::Arc;

use service::{Closed, buffered};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::server::Shared;
use crate::session;

/// Serves one connection until it is closed.
pub(crate) async fn serve(stream: TcpStream, shared: &Arc<Shared>, id: u64, peer: SocketAddr) {
    if let Err(error) = service::set_options(&stream, shared.config.idle_timeout) {
        tracing::debug!(%error, "cannot set socket options");
    }
    let Some(tls) = shared.config.access.tls.clone() else {
        return session::serve(stream, shared, id, peer).await;
    };
    let limit = shared.config.handshake_timeout;
    match timeout(limit, TlsAcceptor::from(tls.config()).accept(buffered(stream))).await {
        Ok(Ok(stream)) => session::serve(stream, shared, id, peer).await,
        Ok(Err(error)) => shared.activity.closed(Closed::Tls, format_args!("no TLS handshake: {error}")),
        Err(_) => {
            let seconds = limit.as_secs_f64();
            shared.activity.closed(Closed::Timeout, format_args!("no TLS handshake within {seconds} s"));
        }
    }
}
