use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// Limits log lines per period, so that a peer that keeps failing cannot fill the disk.
#[derive(Debug)]
pub struct Throttle {
    most: u32,
    period: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    passed: u32,
    held_back: u64,
}

impl Throttle {
    /// `most` lines per `period`.
    #[must_use]
    pub fn new(most: u32, period: Duration) -> Self {
        let state = State { since: Instant::now(), passed: 0, held_back: 0 };
        Self { most, period, state: Mutex::new(state) }
    }

    /// `Some` if a line may be logged now, with the number of lines suppressed since the last one, if any.
    pub fn pass(&self) -> Option<Option<u64>> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<Option<u64>> {
        let mut state = lock(&self.state);
        if now.saturating_duration_since(state.since) >= self.period {
            state.since = now;
            state.passed = 0;
        }
        if state.passed == self.most {
            state.held_back += 1;
            return None;
        }
        state.passed += 1;
        Some(Some(std::mem::take(&mut state.held_back)).filter(|count| *count > 0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Throttle;

    #[test]
    fn suppressed_lines_are_counted() {
        let throttle = Throttle::new(2, Duration::from_secs(10));
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let passed = [0, 0, 0, 1, 20, 20, 20].map(|seconds| throttle.pass_at(at(seconds)));
        assert_eq!(passed, [Some(None), Some(None), None, None, Some(Some(2)), Some(None), None]);
    }
}
