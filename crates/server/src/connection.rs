use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::server::Shared;
use crate::session;

/// Serves one connection until it is closed.
pub(crate) async fn serve(stream: TcpStream, shared: &Arc<Shared>, id: u64, peer: SocketAddr) {
    let listening = &shared.config.listening;
    listening.set_options(&stream);
    let Some(tls) = &listening.access.tls else { return session::serve(stream, shared, id, peer).await };
    let encrypted = tokio::select! {
        encrypted = listening.encrypt(tls, stream, &shared.activity) => encrypted,
        () = shared.drain.cancelled() => None,
    };
    if let Some(stream) = encrypted {
        session::serve(stream, shared, id, peer).await;
    }
}
