//! Limits events per second.

use tokio::time::{Duration, Instant, sleep};

/// A token bucket that holds one second's worth of events.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    per_second: f64,
    allowance: f64,
    since: Instant,
}

impl RateLimiter {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second.max(1));
        Self { per_second, allowance: per_second, since: Instant::now() }
    }

    /// Waits until the next event is within the rate.
    pub(crate) async fn next(&mut self) {
        let now = Instant::now();
        let earned = now.duration_since(self.since).as_secs_f64() * self.per_second;
        (self.allowance, self.since) = ((self.allowance + earned).min(self.per_second), now);
        if self.allowance < 1.0 {
            sleep(Duration::from_secs_f64((1.0 - self.allowance) / self.per_second)).await;
        }
        self.allowance -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::RateLimiter;

    #[tokio::test(start_paused = true)]
    async fn events_are_limited_per_second() {
        let (mut limiter, since) = (RateLimiter::new(10), Instant::now());
        for _ in 0..40 {
            limiter.next().await;
        }
        let seconds = since.elapsed().as_secs_f64();
        assert!((2.9..3.2).contains(&seconds), "{seconds}");
    }
}
