use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::report::ThroughputReport;

/// Interval of samples.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Samples kept: ten minutes.
const SAMPLES: usize = 600;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) rows: u64,
    pub(crate) elements: u64,
    pub(crate) pages: u64,
}

/// Rates of the last minutes.
#[derive(Debug)]
pub(crate) struct Throughput {
    last: (Instant, Totals),
    rates: VecDeque<[f64; 3]>,
}

impl Throughput {
    pub(crate) fn new(now: Instant) -> Self {
        Self { last: (now, Totals::default()), rates: VecDeque::with_capacity(SAMPLES) }
    }

    /// Adds a sample of the counts at `now`. Missing samples are filled with the mean rate over the gap.
    pub(crate) fn sample(&mut self, now: Instant, totals: Totals) {
        let (then, before) = self.last;
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let rates =
            [rate(totals.rows, before.rows), rate(totals.elements, before.elements), rate(totals.pages, before.pages)];
        let times = (seconds / INTERVAL.as_secs_f64()).round().clamp(1.0, SAMPLES as f64) as usize;
        for _ in 0..times {
            if self.rates.len() == SAMPLES {
                self.rates.pop_front();
            }
            self.rates.push_back(rates);
        }
        self.last = (now, totals);
    }

    pub(crate) fn report(&self) -> ThroughputReport {
        // One decimal is enough for a plot, and keeps the JSON short.
        let column = |index: usize| self.rates.iter().map(|rates| (rates[index] * 10.0).round() / 10.0).collect();
        ThroughputReport {
            interval_seconds: INTERVAL.as_secs_f64(),
            rows_per_second: column(0),
            elements_per_second: column(1),
            pages_per_second: column(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{SAMPLES, Throughput, Totals};

    #[test]
    fn rates_are_per_second_and_gaps_are_filled() {
        let start = Instant::now();
        let mut throughput = Throughput::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        throughput.sample(at(1), Totals { rows: 100, elements: 0, pages: 0 });
        throughput.sample(at(1), Totals { rows: 999, elements: 0, pages: 0 });
        throughput.sample(at(4), Totals { rows: 400, elements: 30, pages: 3 });
        let report = throughput.report();
        assert_eq!(report.rows_per_second, [100.0; 4]);
        assert_eq!(report.elements_per_second, [0.0, 10.0, 10.0, 10.0]);
        assert_eq!(report.pages_per_second, [0.0, 1.0, 1.0, 1.0]);
        throughput.sample(at(100_000), Totals::default());
        assert_eq!(throughput.report().rows_per_second, [0.0; SAMPLES]);
    }
}
