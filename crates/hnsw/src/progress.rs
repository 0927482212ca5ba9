//! How far is a build, and has it been cancelled?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{BuildError, Pass, Recorder};

/// The phase of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Taking rows. The engine `usearch` also inserts their elements.
    Rows = 0,
    /// Finding candidates for all lists, or inserting elements.
    Graph = 1,
    /// Selecting neighbors, measuring the graph, repairs.
    Repair = 2,
    /// Ordering elements for the pages.
    Order = 3,
}

/// A build's progress: written by the engine, read by any thread at any time.
#[derive(Debug)]
pub struct Progress {
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
    begun: Instant,
    /// Nanoseconds from `begun` until the phase was entered.
    entered: AtomicU64,
    /// Nanoseconds in each phase, without the time since `entered`.
    spent: [AtomicU64; 4],
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            phase: AtomicU8::default(),
            done: AtomicU64::default(),
            total: AtomicU64::default(),
            begun: Instant::now(),
            entered: AtomicU64::default(),
            spent: Default::default(),
        }
    }
}

impl Progress {
    /// Enters a phase of `total` steps, 0 if not known.
    pub fn enter(&self, phase: Phase, total: u64) {
        let now = self.nanoseconds();
        let before = self.entered.swap(now, Ordering::Relaxed);
        self.spent[self.get().0 as usize].fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Adds further steps to the phase.
    pub(crate) fn expect_more(&self, steps: u64) {
        self.total.fetch_add(steps, Ordering::Relaxed);
    }

    /// Adds finished steps of the phase.
    pub fn add(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
    }

    /// The phase, the steps done in it and their total (0 when not known).
    #[must_use]
    pub fn get(&self) -> (Phase, u64, u64) {
        let phase = match self.phase.load(Ordering::Acquire) {
            0 => Phase::Rows,
            1 => Phase::Graph,
            2 => Phase::Repair,
            _ => Phase::Order,
        };
        (phase, self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// The time spent in each phase so far, in the order of [`Phase`].
    #[must_use]
    pub fn spent(&self) -> [Duration; 4] {
        let mut spent = self.spent.each_ref().map(|spent| spent.load(Ordering::Relaxed));
        spent[self.get().0 as usize] += self.nanoseconds().saturating_sub(self.entered.load(Ordering::Relaxed));
        spent.map(Duration::from_nanos)
    }

    fn nanoseconds(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A handle to watch and cancel a build. Clones share its state.
#[derive(Clone, Debug, Default)]
pub struct Control {
    cancelled: Arc<AtomicBool>,
    progress: Arc<Progress>,
    recorder: Option<Arc<Recorder>>,
    /// A pass that a benchmark leaves out.
    left_out: Option<Pass>,
}

impl Control {
    /// A handle for a build whose tasks are recorded.
    #[must_use]
    pub fn recorded(recorder: Arc<Recorder>) -> Self {
        Self { recorder: Some(recorder), ..Self::default() }
    }

    /// A handle for a build beside this one, as in a trial, with the same cancellation and its own progress.
    #[must_use]
    pub fn aside(&self) -> Self {
        Self { progress: Arc::default(), ..self.clone() }
    }

    /// This handle, for a build without a pass.
    pub(crate) fn without(self, pass: Pass) -> Self {
        Self { left_out: Some(pass), ..self }
    }

    /// Whether the build has a pass.
    pub(crate) fn runs(&self, pass: Pass) -> bool {
        self.left_out != Some(pass)
    }

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_deref()
    }

    /// Cancels the build, which ends once its tasks notice: mostly within 100 ms, with many millions of rows within seconds.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`Control::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// For engines: stops with `?` when the build was cancelled.
    ///
    /// # Errors
    /// [`BuildError::Cancelled`]
    pub fn check(&self) -> Result<(), BuildError> {
        if self.is_cancelled() { Err(BuildError::Cancelled) } else { Ok(()) }
    }

    /// The build's progress.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::{Phase, Progress};

    #[test]
    fn expected_steps_are_added_to_the_total() {
        let progress = Progress::default();
        progress.enter(Phase::Repair, 10);
        progress.add(10);
        progress.expect_more(5);
        progress.add(4);
        assert_eq!(progress.get(), (Phase::Repair, 14, 15));
        progress.enter(Phase::Order, 3);
        assert_eq!(progress.get(), (Phase::Order, 0, 3));
    }

    #[test]
    fn time_goes_to_the_phase_in_which_it_was_spent() {
        let progress = Progress::default();
        let moment = Duration::from_millis(2);
        progress.enter(Phase::Graph, 10);
        sleep(moment);
        progress.enter(Phase::Order, 5);
        let [_, graph, repair, order] = progress.spent();
        assert!(graph >= moment && repair.is_zero(), "{graph:?} {repair:?}");
        sleep(moment);
        let later = progress.spent();
        assert!(later[1] == graph && later[3] >= order + moment, "{later:?}");
    }
}
