//! Accepts connections, limited in number and per second. Pending connections are closed to make room for others.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::pending::PendingConnections;
use crate::rate_limiter::RateLimiter;
use crate::{Activity, Closed};

const BACK_OFF: Duration = Duration::from_millis(10);
const BACK_OFF_MOST: Duration = Duration::from_secs(1);

/// How connections of clients are accepted.
#[derive(Clone, Debug)]
pub struct Door {
    /// The most open connections; beyond that the oldest pending connection is closed.
    pub max_connections: usize,
    /// The most connections accepted per second; others wait.
    pub max_handshakes: u32,
    /// The connections without a request so far.
    pub pending: PendingConnections,
    /// The daemon's activity.
    pub activity: Arc<Activity>,
    /// The sessions.
    pub tasks: TaskTracker,
}

impl Door {
    /// Accepts connections until the future is dropped. Each is served by `serve` in its own task, within a tracing span, with
    /// its number.
    pub async fn accept<F>(&self, listener: &TcpListener, serve: impl Fn(TcpStream, SocketAddr, u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let permits = Arc::new(Semaphore::new(self.max_connections));
        let mut rate_limiter = RateLimiter::new(self.max_handshakes);
        let sessions = AtomicU64::new(0);
        let mut back_off = BACK_OFF;
        loop {
            rate_limiter.next().await;
            match listener.accept().await {
                Ok((stream, peer)) => {
                    back_off = BACK_OFF;
                    let Some(permit) = self.permit(&permits).await else { return };
                    let id = sessions.fetch_add(1, Ordering::Relaxed) + 1;
                    let span = tracing::info_span!("session", id, %peer, build = tracing::field::Empty, label = tracing::field::Empty);
                    let (door, session) = (self.clone(), serve(stream, peer, id));
                    let session = async move {
                        let _open = door.activity.metrics().connection();
                        let pending = door.pending.enter(id);
                        tokio::select! {
                            () = session => {}
                            () = pending.closed() => {
                                let text = format_args!("too many connections, and this one has no request");
                                door.activity.closed(Closed::Limit, text);
                            }
                        }
                        drop(permit);
                    };
                    self.tasks.spawn(session.instrument(span));
                }
                // Usually file descriptors have run out: as with the limit, pending connections make room. An immediate retry would keep
                // a core busy.
                Err(error) => {
                    if is_shortage(&error) && self.pending.close_oldest().is_ok() {
                        back_off = BACK_OFF;
                    }
                    tracing::warn!(%error, retry_ms = back_off.as_millis(), "cannot accept a connection");
                    sleep(back_off).await;
                    back_off = (back_off * 2).min(BACK_OFF_MOST);
                }
            }
        }
    }

    /// A permit for one more connection; if there is none left, a pending connection is closed for it.
    async fn permit(&self, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Some(permit);
        }
        loop {
            // A connection takes a moment to close.
            let wait = self.pending.close_oldest().err().unwrap_or(BACK_OFF_MOST);
            if let Ok(permit) = timeout(wait, permits.clone().acquire_owned()).await {
                return permit.ok();
            }
        }
    }
}

/// Whether the process or the system lacks file descriptors, or memory for them.
fn is_shortage(error: &io::Error) -> bool {
    let shortage = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| shortage.contains(&error))
}
