//! How fast a build goes: as fast as the settings allow, and how long it took.

use std::fmt;
use std::time::{Duration, Instant};

use crate::wait;

/// Holds rows and pages back, so that they never come faster than a limit.
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// When the next bytes may move.
    due: Instant,
}

impl Pace {
    /// `None`: as fast as can be.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, due: Instant::now() }
    }

    /// Pauses for what was moved. Ends the statement if it was cancelled.
    pub(crate) fn keep(&mut self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        let now = Instant::now();
        // Time that was not used before is not made up for.
        self.due = self.due.max(now) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        wait::pause(self.due - now);
    }
}

/// Measures the phases of a build.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start or the last lap.
    pub(crate) fn lap(&mut self) -> Seconds {
        let before = std::mem::replace(&mut self.0, Instant::now());
        Seconds(self.0 - before)
    }
}

/// Shown as `1.23 s`.
pub(crate) struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} s", self.0.as_secs_f64())
    }
}
