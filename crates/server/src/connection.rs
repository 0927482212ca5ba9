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
    if let Some(stream) = listening.encrypt(tls, stream, &shared.activity).await {
        session::serve(stream, shared, id, peer).await;
    }
}
