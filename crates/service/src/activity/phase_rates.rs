//! Estimates how long the remaining phases of a build take, from the phases of earlier builds.

use std::time::Duration;

use protocol::Phase;

use crate::report::{PhaseSeconds, Subject};

/// Builds with fewer rows are ignored.
const LEAST_ROWS: u64 = 500;

/// Seconds that each phase takes per unit of [`work`], in the order of the phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseRates {
    units: [f64; 5],
    /// Whether a build has been measured; until then the rates are defaults, measured on another machine.
    learned: bool,
}

impl Default for PhaseRates {
    fn default() -> Self {
        Self::new(1)
    }
}

impl PhaseRates {
    pub(super) fn new(threads: u32) -> Self {
        let threads = f64::from(threads.max(1));
        Self { units: [0.0, 3e-9 / threads, 1e-9 / threads, 3e-9, 3e-9], learned: false }
    }

    /// Learns from a build that succeeded.
    pub(super) fn learn(&mut self, subject: &Subject, rows: u64, spent: &[Duration; 5]) {
        if rows < LEAST_ROWS {
            return;
        }
        for (phase, unit) in self.units.iter_mut().enumerate().skip(1) {
            let found = spent[phase].as_secs_f64() / work(subject, rows, phase);
            *unit = if self.learned { f64::midpoint(*unit, found) } else { found };
        }
        self.learned = true;
    }

    /// Seconds for all phases after `phase`.
    pub(super) fn after(&self, phase: Phase, subject: &Subject, rows: u64) -> f64 {
        let first = phase as usize;
        (first..5).map(|phase| self.units[phase] * work(subject, rows, phase)).sum()
    }

    /// Seconds for `phase`.
    pub(super) fn of(&self, phase: Phase, subject: &Subject, rows: u64) -> f64 {
        let phase = phase as usize - 1;
        self.units[phase] * work(subject, rows, phase)
    }
}

/// The relative cost of the phase with this index: the cost of a distance grows with the dimensions, and the number of
/// distances with `m` and with the logarithm of the rows.
fn work(subject: &Subject, rows: u64, phase: usize) -> f64 {
    let (dims, m, rows) = (f64::from(subject.dims), f64::from(subject.m), rows as f64);
    match phase {
        1 | 2 => (dims + 600.0) * (m + 4.0) * rows * rows.max(2.0).log2() / 13.0,
        3 => (dims + 8.0 * m) * rows,
        _ => (dims + 24.0 * m) * rows,
    }
}

/// The durations by name.
pub(super) fn by_name(spent: &[Duration; 5]) -> PhaseSeconds {
    let [rows, graph, repair, order, pages] = spent.map(|spent| spent.as_secs_f64());
    PhaseSeconds { rows, graph, repair, order, pages }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::Phase;

    use super::PhaseRates;
    use crate::report::Subject;

    #[test]
    fn estimates_follow_a_measured_build() {
        let subject = Subject { dims: 128, m: 16, ..Subject::default() };
        let mut rates = PhaseRates::new(2);
        let spent = [5, 10, 2, 1, 3].map(Duration::from_secs);
        rates.learn(&subject, 100_000, &spent);
        let close = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.01, "{found} {expected}");
        close(rates.after(Phase::Rows, &subject, 100_000), 16.0);
        close(rates.after(Phase::Order, &subject, 200_000), 6.0);
        close(rates.of(Phase::Graph, &subject, 100_000), 10.0);
        assert!(rates.of(Phase::Graph, &subject, 10_000_000) > 1000.0, "it grows faster than the rows");
        assert!(rates.after(Phase::Pages, &subject, 100_000).abs() < 1e-9);
        let before = rates.after(Phase::Rows, &subject, 1000);
        rates.learn(&subject, 3, &[Duration::from_secs(100); 5]);
        assert!((rates.after(Phase::Rows, &subject, 1000) - before).abs() < 1e-9, "three rows say nothing");
    }
}
