//! The arithmetic of the rate limit, without PostgreSQL and clock, so that it can be tested.

use std::time::{Duration, Instant};

/// Unused time that is made up for, beside the time of the bytes themselves: more than what a pause oversleeps.
const CREDIT: Duration = Duration::from_millis(100);

/// How many bytes may move by when.
pub(crate) struct Allowance {
    bytes_per_second: u64,
    /// When all bytes so far were due at the rate.
    due: Instant,
}

impl Allowance {
    pub(crate) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), due: now }
    }

    /// Bytes have moved. Returns how long to pause.
    pub(crate) fn spend(&mut self, bytes: usize, now: Instant) -> Duration {
        let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let earliest = now.checked_sub(CREDIT + time).unwrap_or(now);
        self.due = self.due.max(earliest) + time;
        self.due.saturating_duration_since(now)
    }
}
