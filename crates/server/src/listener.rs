use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::Instrument;

use crate::connection;
use crate::server::Shared;

const BACK_OFF: Duration = Duration::from_millis(10);
const BACK_OFF_MOST: Duration = Duration::from_secs(1);

/// Accepts connections, one task each, for as long as it is polled.
pub(crate) async fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(shared.config.max_connections));
    let sessions = AtomicU64::new(0);
    let mut back_off = BACK_OFF;
    loop {
        // A permit before the connection: clients too many wait in the system's queue.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                back_off = BACK_OFF;
                let id = sessions.fetch_add(1, Ordering::Relaxed) + 1;
                let span = tracing::info_span!("session", id, %peer, label = tracing::field::Empty);
                let shared = shared.clone();
                let tasks = shared.tasks.clone();
                let serve = async move {
                    let _open = shared.activity.metrics().connection();
                    connection::serve(stream, &shared, id, peer).await;
                    drop(permit);
                };
                tasks.spawn(serve.instrument(span));
            }
            // Mostly: no file descriptors left. Trying again at once would only burn a core.
            Err(error) => {
                tracing::warn!(%error, retry_ms = back_off.as_millis(), "cannot accept a connection");
                sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF_MOST);
            }
        }
    }
}
