use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use service::Closed;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::connection;
use crate::pace::Pace;
use crate::server::Shared;

const BACK_OFF: Duration = Duration::from_millis(10);
const BACK_OFF_MOST: Duration = Duration::from_secs(1);

/// Accepts connections, one task each, for as long as it is polled.
pub(crate) async fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(shared.config.max_connections));
    let mut pace = Pace::new(shared.config.max_handshakes);
    let sessions = AtomicU64::new(0);
    let mut back_off = BACK_OFF;
    loop {
        pace.next().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                back_off = BACK_OFF;
                let Some(permit) = make_room(&permits, shared).await else { return };
                let id = sessions.fetch_add(1, Ordering::Relaxed) + 1;
                serve(stream, peer, shared.clone(), id, permit);
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

fn serve(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>, id: u64, permit: OwnedSemaphorePermit) {
    let span = tracing::info_span!("session", id, %peer, label = tracing::field::Empty);
    let tasks = shared.tasks.clone();
    let session = async move {
        let _open = shared.activity.metrics().connection();
        let newcomer = shared.newcomers.enter(id);
        tokio::select! {
            () = connection::serve(stream, &shared, id, peer) => {}
            () = newcomer.closed() => {
                let text = format_args!("too many connections, and this one has not said what it wants");
                shared.activity.closed(Closed::Limit, text);
            }
        }
        drop(permit);
    };
    tasks.spawn(session.instrument(span));
}

/// A permit for one more connection; others that have not said what they want are closed for it.
async fn make_room(permits: &Arc<Semaphore>, shared: &Shared) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = permits.clone().try_acquire_owned() {
        return Some(permit);
    }
    loop {
        // One that was closed may take a moment to be gone.
        let wait = shared.newcomers.close_oldest().err().unwrap_or(BACK_OFF_MOST);
        if let Ok(permit) = timeout(wait, permits.clone().acquire_owned()).await {
            return permit.ok();
        }
    }
}
