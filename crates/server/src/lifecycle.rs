//! What sessions of both protocols share: the time limit for the request, start and end of a build, the log line of a failure, the close.

use std::future::pending;
use std::time::Duration;

use hnsw::{BuildSpec, Control};
use protocol::{Hello, Phase};
use service::{Activity, Outcome, Queued, Running, printable};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::job::Job;
use crate::progress::Watch;
use crate::server::Shared;
use crate::session_error::SessionError;

/// How long a client may take to read an error message, and to close afterwards.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Waits for the client's request within the handshake timeout.
pub(crate) async fn in_time<T>(
    shared: &Shared,
    request: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, SessionError> {
    let limit = shared.config.listening.handshake_timeout;
    tokio::select! {
        request = timeout(limit, request) => request.map_err(|_| SessionError::Late(limit))?,
        () = shared.drain.cancelled() => Err(SessionError::Shutdown),
    }
}

/// A build whose session drives it. The job is cancelled when this is dropped.
pub(crate) struct StartedBuild {
    pub(crate) job: Job,
    pub(crate) watch: Watch,
    pub(crate) running: Running,
    cancel: CancelOnDrop,
}

impl StartedBuild {
    /// Counts the build as running with `memory` bytes reserved, and logs its parameters. `hello` is `None` for a Lantern client.
    pub(crate) fn new(job: Job, queued: Queued, spec: &BuildSpec, memory: u64, hello: Option<&Hello>) -> Self {
        let cancel = CancelOnDrop(job.control.clone());
        let watch = Watch::new(job.control.clone());
        let stage = watch.clone();
        let running = queued.begin(memory, move || stage.stage());
        tracing::info!(
            value_type = spec.value_type.name(),
            metric = spec.metric.name(),
            dims = spec.dims,
            m = spec.m,
            ef_construction = spec.ef_construction,
            expected_rows = spec.expected_rows,
            memory,
            check_blocks = hello.and_then(|hello| Some(hello.check?.blocks)),
            advice_for = hello.and_then(|hello| Some(hello.ask?.table_rows)),
            client = hello.map_or_else(|| "Lantern".to_owned(), |hello| printable(&hello.client_version)),
            postgres = hello.map(|hello| printable(&hello.server_version)),
            "build started"
        );
        Self { job, watch, running, cancel }
    }

    /// Ends the session's part of the build; its thread may still be running.
    pub(crate) fn end(self, result: &Result<(), SessionError>) -> EndedBuild {
        let Self { job, running, cancel, .. } = self;
        let (outcome, reason) = match result {
            Ok(()) => (Outcome::Succeeded, None),
            Err(error) => (error.outcome(), Some(error.to_string())),
        };
        EndedBuild { job, running, outcome, reason, _cancel: cancel }
    }
}

/// A build whose session has ended; its thread may still be running.
pub(crate) struct EndedBuild {
    job: Job,
    running: Running,
    outcome: Outcome,
    reason: Option<String>,
    _cancel: CancelOnDrop,
}

impl EndedBuild {
    /// Waits for the thread: a build counts as ended only when its memory is free.
    async fn join(self) {
        let Job { rows, mut events, .. } = self.job;
        drop(rows);
        // Receive, do not close: with a closed channel this loop would end while the thread is still running.
        while events.recv().await.is_some() {}
        self.running.end(self.outcome, self.reason);
    }
}

/// Completes with an error when the build, or the arrival of its rows, exceeds its time limit.
pub(crate) async fn overdue(config: &Config, watch: &Watch) -> SessionError {
    let after = async |limit: Option<Duration>| match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    };
    let rows = async {
        after(config.max_rows_time).await;
        if watch.stage().phase != Phase::Rows {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = after(config.max_build_time) => SessionError::Overdue(config.max_build_time.unwrap_or_default()),
        () = rows => SessionError::RowsOverdue(config.max_rows_time.unwrap_or_default()),
    }
}

/// Logs why a session ends early.
pub(crate) fn log_failure(activity: &Activity, error: &SessionError) {
    let sqlstate = error.report().map(|report| report.sqlstate);
    let sqlstate = sqlstate.as_ref().map_or("", |sqlstate| sqlstate.as_str());
    match (activity.peer_errors().pass(), error.outcome()) {
        (None, _) => {}
        (Some(held_back), Outcome::Failed) => tracing::warn!(%error, sqlstate, held_back, "build failed"),
        (Some(held_back), _) => tracing::info!(%error, sqlstate, held_back, "build ended early"),
    }
}

/// Ends the session with the number `id`. `close` shuts the stream down and reads until the client closes it too: closing a socket with unread
/// bytes resets the connection, and the client may lose what it has not read. Meanwhile the build's thread ends. Then the connection is
/// pending, like one without a request: it is closed if there are too many connections.
pub(crate) async fn close(shared: &Shared, id: u64, build: Option<EndedBuild>, close: impl Future) {
    let outcome = build.as_ref().map(|build| build.outcome);
    let limit = if outcome == Some(Outcome::Succeeded) { shared.config.listening.idle_timeout } else { LINGER };
    let ended = CancellationToken::new();
    let closed = async {
        let crowded = async {
            ended.cancelled().await;
            shared.door.pending.enter(id).closed().await;
        };
        tokio::select! {
            _ = timeout(limit, close) => {}
            () = crowded => {}
            () = shared.stop.cancelled() => {}
        }
    };
    let joined = async {
        if let Some(build) = build {
            build.join().await;
        }
        ended.cancel();
    };
    tokio::join!(closed, joined);
}

/// Cancels the build when the session ends, for whatever reason.
struct CancelOnDrop(Control);

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
        let (outcome, _cancel) = (Outcome::Cancelled, CancelOnDrop(control));
        EndedBuild { job, running, outcome, reason: None, _cancel }.join().await;
        assert!(is_seen_over.load(Ordering::Relaxed));
        assert_eq!(activity.report().ended[0].outcome, Outcome::Cancelled);
        thread.join().unwrap();
    }
}
