//! The limit of `hnsw.external_index_max_rate`, and a stopwatch for the phases of a build.

mod allowance;

use std::time::{Duration, Instant};

use self::allowance::Allowance;
use crate::wait;

/// Delays rows and pages, so that they do not exceed a rate.
pub(crate) struct RateLimit(Option<Allowance>);

impl RateLimit {
    /// `None`: no limit.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self(bytes_per_second.map(|rate| Allowance::new(rate, Instant::now())))
    }

    /// Pauses for the bytes that were sent or received. Ends the statement if it was cancelled.
    pub(crate) fn keep(&mut self, bytes: usize) {
        wait::pause(self.pause_after(bytes));
    }

    /// How long to pause for the bytes that were sent or received.
    pub(crate) fn pause_after(&mut self, bytes: usize) -> Duration {
        self.0.as_mut().map_or(Duration::ZERO, |allowance| allowance.spend(bytes, Instant::now()))
    }
}

/// Measures the phases of a build.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start or the last lap, such as `1.23 s`.
    pub(crate) fn lap(&mut self) -> String {
        let before = std::mem::replace(&mut self.0, Instant::now());
        format!("{:.2} s", (self.0 - before).as_secs_f64())
    }
}
