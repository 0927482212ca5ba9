use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::Instrument;

use crate::router::Shared;
use crate::session;

const BACK_OFF: Duration = Duration::from_millis(100);

/// Accepts connections, one task each, for as long as it is polled.
pub(crate) async fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(shared.config.max_connections));
    let sessions = AtomicU64::new(0);
    loop {
        // A permit before the connection: clients too many wait in the system's queue.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let id = sessions.fetch_add(1, Ordering::Relaxed) + 1;
                let span = tracing::info_span!("session", id, %peer);
                let session = shared.clone();
                let serve = async move {
                    session::serve(stream, peer, &session, id).await;
                    drop(permit);
                };
                shared.tasks.spawn(serve.instrument(span));
            }
            Err(error) => {
                // Too many open files, perhaps: it would fail at once again.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(BACK_OFF).await;
            }
        }
    }
}
