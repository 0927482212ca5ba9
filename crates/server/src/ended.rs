use hnsw::Control;
use service::{Outcome, Running};

use crate::job::Job;

/// A build whose session is over, but maybe not its thread.
pub(crate) struct EndedBuild {
    job: Job,
    running: Running,
    pub(crate) outcome: Outcome,
    reason: Option<String>,
    _cancel: CancelOnDrop,
}

impl EndedBuild {
    /// The build of a session that ended so; `reason` says why it did not succeed.
    pub(crate) fn new(
        job: Job,
        running: Running,
        outcome: Outcome,
        reason: Option<String>,
        cancel: CancelOnDrop,
    ) -> Self {
        Self { job, running, outcome, reason, _cancel: cancel }
    }

    /// Waits for the thread.
    pub(crate) async fn end(self) {
        let Job { rows, mut events, .. } = self.job;
        drop(rows);
        events.close();
        while events.recv().await.is_some() {}
        self.running.end(self.outcome, self.reason);
    }
}

/// Stops a build whose session is gone, for whatever reason.
pub(crate) struct CancelOnDrop(Control);

impl CancelOnDrop {
    pub(crate) fn new(control: &Control) -> Self {
        Self(control.clone())
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
