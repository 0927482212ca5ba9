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

    /// Waits for the thread, so that a build that is counted as ended has no memory any more.
    pub(crate) async fn end(self) {
        let Job { rows, mut events, .. } = self.job;
        drop(rows);
        // Not closed before: a closed channel reports its end while the thread is still at work.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use hnsw::Control;
    use protocol::Phase;
    use service::report::Subject;
    use service::{Activity, Outcome, Role, Stage};
    use tokio::sync::mpsc;

    use super::{CancelOnDrop, EndedBuild};
    use crate::job::{Event, Input, Job};

    #[tokio::test]
    async fn a_build_ends_after_its_thread() {
        let activity = Arc::new(Activity::new(Role::Builder, "0", false).unwrap());
        let stage = || Stage { phase: Phase::Graph, done: 0, total: 1, spent: [Duration::ZERO; 5] };
        let running = activity.queue(Subject::default()).begin(100, stage);
        let (rows, mut input) = mpsc::channel::<Input>(1);
        let (output, events) = mpsc::channel::<Event>(1);
        let control = Control::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let is_seen_over = is_over.clone();
        let thread = thread::spawn(move || {
            assert!(input.blocking_recv().is_none());
            for _ in 0..3 {
                let _ = output.blocking_send(Event::Started);
            }
            thread::sleep(Duration::from_millis(300));
            is_over.store(true, Ordering::Relaxed);
            drop(output);
        });
        let job = Job { rows, events, control: control.clone() };
        EndedBuild::new(job, running, Outcome::Cancelled, None, CancelOnDrop::new(&control)).end().await;
        assert!(is_seen_over.load(Ordering::Relaxed));
        assert_eq!(activity.report().ended[0].outcome, Outcome::Cancelled);
        thread.join().unwrap();
    }
}
