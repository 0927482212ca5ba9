use std::sync::Mutex;
use std::time::{Duration, Instant};

use protocol::{Phase, Progress};
use service::{Stage, lock};

/// The progress of a relayed build, from its builder's messages to the client.
#[derive(Debug)]
pub(crate) struct Stages(Mutex<(Stage, Instant)>);

impl Stages {
    pub(crate) fn new() -> Self {
        let stage = Stage { phase: Phase::Rows, done: 0, total: 0, spent: [Duration::ZERO; 5] };
        Self(Mutex::new((stage, Instant::now())))
    }

    /// Records a Progress message.
    pub(crate) fn see(&self, progress: &Progress) {
        let Some(phase) = Phase::from_number(progress.phase) else { return };
        let mut inner = lock(&self.0);
        let (stage, since) = &mut *inner;
        if phase != stage.phase {
            stage.spent[stage.phase as usize - 1] += since.elapsed();
            (stage.phase, *since) = (phase, Instant::now());
        }
        (stage.done, stage.total) = (progress.done, progress.total);
    }

    /// The current stage, with the time spent in each phase.
    pub(crate) fn stage(&self) -> Stage {
        let inner = lock(&self.0);
        let (mut stage, since) = *inner;
        stage.spent[stage.phase as usize - 1] += since.elapsed();
        stage
    }
}
