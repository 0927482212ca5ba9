//! Pending connections: their clients have not sent a request yet, or have got their answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use crate::lock;

/// Connections younger than this are not closed: their request may be on its way.
const GRACE: Duration = Duration::from_secs(1);

/// The pending connections of a daemon. If there are too many connections, the oldest pending one is closed, so that clients
/// that only open connections cannot lock others out.
#[derive(Clone, Debug, Default)]
pub struct PendingConnections {
    /// In order of arrival.
    list: Arc<Mutex<VecDeque<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    since: Instant,
    close: CancellationToken,
}

/// A pending connection; no longer listed once it is settled or this is dropped.
#[derive(Debug)]
pub struct PendingConnection {
    pending: PendingConnections,
    id: u64,
    close: CancellationToken,
}

impl PendingConnections {
    /// Adds a connection by its number: when it is accepted, and again when its request has ended.
    pub fn enter(&self, id: u64) -> PendingConnection {
        let close = CancellationToken::new();
        lock(&self.list).push_back(Entry { id, since: Instant::now(), close: close.clone() });
        PendingConnection { pending: self.clone(), id, close }
    }

    /// Removes a connection whose client has sent a request.
    pub fn settle(&self, id: u64) {
        lock(&self.list).retain(|entry| entry.id != id);
    }

    /// Closes the oldest pending connection if it is older than the grace period; otherwise returns the time until one will be.
    pub fn close_oldest(&self) -> Result<(), Duration> {
        let mut list = lock(&self.list);
        let age = list.front().map_or(Duration::ZERO, |entry| entry.since.elapsed());
        if age < GRACE {
            return Err(GRACE - age);
        }
        if let Some(oldest) = list.pop_front() {
            oldest.close.cancel();
        }
        Ok(())
    }
}

impl PendingConnection {
    /// Completes when the connection must be closed; never once it is settled.
    pub async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.pending.settle(self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, advance};

    use super::PendingConnections;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_pending_connection_is_closed() {
        let pending = PendingConnections::default();
        let [a, b, c] = [1, 2, 3].map(|id| pending.enter(id));
        pending.settle(1);
        assert_eq!(pending.close_oldest(), Err(Duration::from_secs(1)));
        advance(Duration::from_secs(2)).await;
        assert_eq!(pending.close_oldest(), Ok(()));
        b.closed().await;
        assert!(!a.close.is_cancelled() && !c.close.is_cancelled());
        drop(c);
        assert!(pending.close_oldest().is_err(), "nobody is left");
    }
}
