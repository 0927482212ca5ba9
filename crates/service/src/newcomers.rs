//! Connections that have not said yet what they want.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Younger ones are not closed in favor of others: they may just be about to say what they want.
const GRACE: Duration = Duration::from_secs(1);

/// Connections that have not said yet what they want. When there are too many connections, the oldest of these makes room:
/// whoever only opens connections cannot keep others out.
#[derive(Clone, Debug, Default)]
pub struct Newcomers {
    /// In order of arrival.
    list: Arc<Mutex<VecDeque<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    since: Instant,
    close: CancellationToken,
}

/// A connection among the newcomers, until it is settled or dropped.
#[derive(Debug)]
pub struct Newcomer {
    newcomers: Newcomers,
    id: u64,
    close: CancellationToken,
}

impl Newcomers {
    /// Enters a connection by its number.
    pub fn enter(&self, id: u64) -> Newcomer {
        let close = CancellationToken::new();
        self.list().push_back(Entry { id, since: Instant::now(), close: close.clone() });
        Newcomer { newcomers: self.clone(), id, close }
    }

    /// It has said what it wants, and is not closed any more.
    pub fn settle(&self, id: u64) {
        self.list().retain(|entry| entry.id != id);
    }

    /// Closes the oldest one, if there is one past its grace. Else says how long to wait for that.
    pub fn close_oldest(&self) -> Result<(), Duration> {
        let mut list = self.list();
        let age = list.front().map_or(Duration::ZERO, |entry| entry.since.elapsed());
        if age < GRACE {
            return Err(GRACE - age);
        }
        if let Some(oldest) = list.pop_front() {
            oldest.close.cancel();
        }
        Ok(())
    }

    fn list(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Newcomer {
    /// Completes when it has to make room; never after it was settled.
    pub async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.newcomers.settle(self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, advance};

    use super::Newcomers;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_is_not_settled_makes_room() {
        let newcomers = Newcomers::default();
        let [a, b, c] = [1, 2, 3].map(|id| newcomers.enter(id));
        newcomers.settle(1);
        assert_eq!(newcomers.close_oldest(), Err(Duration::from_secs(1)));
        advance(Duration::from_secs(2)).await;
        assert_eq!(newcomers.close_oldest(), Ok(()));
        b.closed().await;
        assert!(!a.close.is_cancelled() && !c.close.is_cancelled());
        drop(c);
        assert!(newcomers.close_oldest().is_err(), "nobody is left");
    }
}
