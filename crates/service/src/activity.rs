use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::Metrics;

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client has all pages.
    Succeeded,
    /// An error on either side.
    Failed,
    /// The client cancelled, went away or fell silent, or the daemon shut down.
    Cancelled,
    /// It was never begun.
    Refused,
}

impl Outcome {
    pub(crate) const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Cancelled, Self::Refused];

    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }
}

/// Whether the daemon takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Readiness {
    /// Not yet.
    Starting = 0,
    /// Yes.
    Ready = 1,
    /// No more.
    Draining = 2,
}

/// What the daemon does: the one place that metrics and status are told of builds.
#[derive(Debug)]
pub struct Activity {
    metrics: Metrics,
    readiness: AtomicU8,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    running: u64,
    last: Option<Outcome>,
    updated_at_ms: u64,
}

impl Activity {
    /// Nothing done yet, [`Readiness::Starting`].
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        let state = State { running: 0, last: None, updated_at_ms: now_ms() };
        Self { metrics, readiness: AtomicU8::new(Readiness::Starting as u8), state: Mutex::new(state) }
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Sets whether the daemon takes work.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.readiness.store(readiness as u8, Ordering::Relaxed);
    }

    /// Whether the daemon takes work.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        match self.readiness.load(Ordering::Relaxed) {
            0 => Readiness::Starting,
            1 => Readiness::Ready,
            _ => Readiness::Draining,
        }
    }

    /// A build begins. It counts as failed when the value is dropped without [`Running::end`].
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Running {
        let mut state = self.state();
        state.running += 1;
        state.updated_at_ms = now_ms();
        drop(state);
        self.metrics.active.inc();
        Running { activity: self.clone(), since: Instant::now(), outcome: Outcome::Failed }
    }

    /// A build was turned away. The status stays as it was, since nothing was begun.
    pub fn refused(&self) {
        self.metrics.count(Outcome::Refused);
    }

    /// The status in the numbers of Lantern's status server, and when it changed, in ms since 1970.
    ///
    /// 0: no build yet, 1: a build is under way, 2: the last one failed, 3: the last one succeeded.
    #[must_use]
    pub fn status(&self) -> (u8, u64) {
        let state = self.state();
        let code = match (state.running, state.last) {
            (0, None) => 0,
            (0, Some(Outcome::Succeeded)) => 3,
            (0, Some(_)) => 2,
            _ => 1,
        };
        (code, state.updated_at_ms)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A build under way.
#[derive(Debug)]
pub struct Running {
    activity: Arc<Activity>,
    since: Instant,
    outcome: Outcome,
}

impl Running {
    /// The build ended, its thread included.
    pub fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let metrics = &self.activity.metrics;
        metrics.active.dec();
        metrics.count(self.outcome);
        metrics.duration.observe(self.since.elapsed().as_secs_f64());
        let mut state = self.activity.state();
        state.running = state.running.saturating_sub(1);
        state.last = Some(self.outcome);
        state.updated_at_ms = now_ms();
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Activity, Outcome};
    use crate::Metrics;

    #[test]
    fn status_follows_the_builds() {
        let activity = Arc::new(Activity::new(Metrics::new("0").unwrap()));
        assert_eq!(activity.status().0, 0);
        activity.refused();
        assert_eq!(activity.status().0, 0, "a refused build was never begun");
        let first = activity.begin();
        let second = activity.begin();
        assert_eq!(activity.status().0, 1);
        first.end(Outcome::Succeeded);
        assert_eq!(activity.status().0, 1, "one is still running");
        drop(second);
        assert_eq!(activity.status().0, 2, "dropped without an outcome is a failure");
        activity.begin().end(Outcome::Succeeded);
        assert_eq!(activity.status().0, 3);
        activity.begin().end(Outcome::Cancelled);
        assert_eq!(activity.status().0, 2);
    }
}
