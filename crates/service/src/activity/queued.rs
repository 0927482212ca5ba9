use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use protocol::{ErrorReport, Refuse};
use tokio_util::sync::CancellationToken;

use super::{Activity, Build, Running, Stage};
use crate::report::{QueuedReport, Subject};
use crate::{Outcome, Refusal};

/// A waiting build.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) subject: Subject,
    since: Instant,
    position: AtomicU32,
    memory: AtomicU64,
    /// Cancelled when the daemon's operator cancels the build.
    pub(super) cancel: CancellationToken,
}

impl Waiting {
    pub(super) fn new(subject: Subject) -> Self {
        Self {
            subject,
            since: Instant::now(),
            position: AtomicU32::new(0),
            memory: AtomicU64::new(0),
            cancel: CancellationToken::new(),
        }
    }

    pub(super) fn report(&self) -> QueuedReport {
        QueuedReport {
            subject: self.subject.clone(),
            position: self.position.load(Ordering::Relaxed),
            memory_bytes: self.memory.load(Ordering::Relaxed),
            waiting_seconds: self.since.elapsed().as_secs_f64(),
            eta_seconds: None,
        }
    }
}

/// A build that waits for admission, from its Hello to its Accept or Refuse; status shows it as waiting.
///
/// The queue itself is the caller's. The caller sets the position of each build whenever it changes, from 1 for the next one,
/// and ends with [`Queued::begin`], [`Queued::refuse`] or [`Queued::end`]; dropping the value means that the client has left.
#[derive(Debug)]
pub struct Queued {
    pub(super) activity: Arc<Activity>,
    pub(super) key: u64,
    pub(super) waiting: Arc<Waiting>,
    pub(super) settled: bool,
}

impl Queued {
    /// Sets the position in the queue, from 1, and the bytes of memory that the build waits for.
    pub fn place(&self, position: u32, memory: u64) {
        self.waiting.position.store(position, Ordering::Relaxed);
        self.waiting.memory.store(memory, Ordering::Relaxed);
    }

    /// Waits until the daemon's operator cancels the build.
    pub async fn cancelled(&self) {
        self.waiting.cancel.cancelled().await;
    }

    /// Begins the build, with `memory` bytes reserved (0 for none). `stage` returns its progress, is called at any time from
    /// any thread, and must not block.
    #[must_use]
    pub fn begin(mut self, memory: u64, stage: impl Fn() -> Stage + Send + Sync + 'static) -> Running {
        self.settled = true;
        let waited = self.waiting.since.elapsed();
        let cancel = self.waiting.cancel.clone();
        let build = Arc::new(Build::new(self.waiting.subject.clone(), cancel, waited, memory, Box::new(stage)));
        self.activity.begin(self.key, &build);
        self.activity.metrics().queue_wait.observe(waited.as_secs_f64());
        Running { activity: self.activity.clone(), key: self.key, build, outcome: Outcome::Failed, reason: None }
    }

    /// Refuses the build for the reason of the client's refusal, and logs it unless errors of peers are throttled.
    pub fn log_and_refuse(self, refuse: &Refuse) {
        let ErrorReport { sqlstate, message, detail, .. } = &refuse.report;
        if let Some(held_back) = self.activity.peer_errors().pass() {
            tracing::warn!(%sqlstate, reason = message, detail, held_back, "build refused");
        }
        self.refuse(Refusal::of(*sqlstate), message.clone());
    }

    /// Refuses the build; `text` is the reason in words.
    pub fn refuse(mut self, reason: Refusal, text: String) {
        self.settled = true;
        self.activity.refuse(self.key, reason, text);
    }

    /// Ends the wait of a build that was not refused, with the reason in words.
    pub fn end(mut self, outcome: Outcome, reason: String) {
        self.settled = true;
        self.activity.end_waiting(self.key, outcome, reason);
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if !self.settled {
            self.activity.end_waiting(self.key, Outcome::Cancelled, "client left while it waited".to_owned());
        }
    }
}
