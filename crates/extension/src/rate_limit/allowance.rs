//! The arithmetic of the rate limit, without PostgreSQL or a clock, so that it can be tested.

use std::time::{Duration, Instant};

/// The most unused time that later bytes may catch up on: more than a pause oversleeps.
const CREDIT: Duration = Duration::from_millis(100);

/// Computes pauses that keep bytes to a rate.
pub(crate) struct Allowance {
    bytes_per_second: u64,
    /// When all bytes so far would have passed at exactly the rate.
    due: Instant,
}

impl Allowance {
    pub(crate) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), due: now }
    }

    /// Counts bytes that were sent or received, and returns how long to pause.
    pub(crate) fn spend(&mut self, bytes: usize, now: Instant) -> Duration {
        let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let earliest = now.checked_sub(CREDIT + time).unwrap_or(now);
        self.due = self.due.max(earliest) + time;
        self.due.saturating_duration_since(now)
    }
}
