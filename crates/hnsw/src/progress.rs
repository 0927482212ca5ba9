use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::BuildError;

/// What a build is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Taking rows; elements are inserted meanwhile.
    Rows = 0,
    /// Inserting the elements that are left.
    Graph = 1,
    /// Completing neighbor lists and linking stranded elements.
    Repair = 2,
    /// Ordering elements for the pages.
    Order = 3,
}

/// How far a build is: written by the engine, read by anybody at any time.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Enters a phase with `total` steps.
    pub fn enter(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Counts steps of the phase.
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
}

/// The handle by which a build is watched and stopped. Clones are the same handle.
#[derive(Clone, Debug, Default)]
pub struct Control {
    cancelled: Arc<AtomicBool>,
    progress: Arc<Progress>,
}

impl Control {
    /// Asks the build to stop; it does within about 100 ms.
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

    /// How far the build is.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }
}
