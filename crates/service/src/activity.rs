//! The daemon's activity: the single source of metrics and status.

mod build;
mod phase_rates;
mod queued;
mod state;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use build::{Running, Stage};
pub use queued::Queued;

use protocol::{ErrorReport, Refuse, SqlState};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use self::build::Build;
use self::queued::Waiting;
use self::state::State;
use crate::report::{BuilderReport, EndedReport, MemoryReport, REPORT_VERSION, Report, Subject};
use crate::throughput::{Throughput, Totals};
use crate::{Closed, Metrics, Outcome, Readiness, Refusal, Role, Throttle, Tls, lock};

pub(crate) use build::{ELEMENT_PHASES, phase_name};

/// The most log lines about errors of peers per [`PEER_ERRORS_PERIOD`].
const PEER_ERRORS: u32 = 20;
const PEER_ERRORS_PERIOD: Duration = Duration::from_secs(10);

type ReadReserved = Box<dyn Fn() -> u64 + Send + Sync>;
type ReadBuilders = Box<dyn Fn() -> Vec<BuilderReport> + Send + Sync>;

/// Why a build cannot be cancelled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotCancelled {
    /// No build has this id.
    #[error("there is no build {0}")]
    Unknown(String),
    /// The client was redirected to a builder.
    #[error(
        "build {build} has been sent to builder {builder}: cancel the statement in the database, or end that builder"
    )]
    Elsewhere {
        /// The build's id.
        build: String,
        /// The builder's name and address.
        builder: String,
    },
}

/// A daemon's state and builds.
///
/// A session calls [`Activity::queue`] when it has the client's request, then [`Queued::begin`] or [`Queued::refuse`], and
/// finally [`Running::end`]. All status and metrics derive from these calls.
pub struct Activity {
    role: Role,
    version: String,
    labels: bool,
    started_ms: u64,
    threads: AtomicU32,
    readiness: AtomicU8,
    /// Whether the operator has drained the daemon.
    drained: AtomicBool,
    metrics: Metrics,
    state: Mutex<State>,
    throughput: Mutex<Throughput>,
    reserved: Mutex<Option<ReadReserved>>,
    builders: Mutex<Option<ReadBuilders>>,
    tls: OnceLock<Arc<Tls>>,
    peer_errors: Throttle,
}

impl Activity {
    /// The activity in its initial state, [`Readiness::Starting`]. Labels of builds are shown only with `labels`.
    ///
    /// # Errors
    /// Never in practice: only if metrics conflict.
    pub fn new(role: Role, version: &str, labels: bool) -> Result<Self, prometheus::Error> {
        Ok(Self {
            role,
            version: version.to_owned(),
            labels,
            started_ms: now_ms(),
            threads: AtomicU32::new(0),
            readiness: AtomicU8::new(Readiness::Starting as u8),
            drained: AtomicBool::new(false),
            metrics: Metrics::new(version, role)?,
            state: Mutex::new(State::new()),
            throughput: Mutex::new(Throughput::new(Instant::now())),
            reserved: Mutex::new(None),
            builders: Mutex::new(None),
            tls: OnceLock::new(),
            peer_errors: Throttle::new(PEER_ERRORS, PEER_ERRORS_PERIOD),
        })
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The limit of log lines about errors of peers: unauthenticated peers must not be able to fill the disk.
    #[must_use]
    pub fn peer_errors(&self) -> &Throttle {
        &self.peer_errors
    }

    /// Counts and logs a connection that is closed before its request.
    pub fn closed(&self, why: Closed, text: fmt::Arguments<'_>) {
        self.metrics.closed(why);
        if let Some(held_back) = self.peer_errors.pass() {
            tracing::info!(reason = why.name(), held_back, "connection closed: {text}");
        }
    }

    /// Sets whether the daemon accepts builds.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.readiness.store(readiness as u8, Ordering::Relaxed);
        self.show_readiness();
    }

    fn show_readiness(&self) {
        self.metrics.ready.set(i64::from(self.readiness() == Readiness::Ready));
    }

    /// Refuses new builds from now on, or accepts them again. Running builds continue.
    pub fn drain(&self, drained: bool) {
        tracing::info!(
            "{}",
            if drained { "the operator lets no build begin" } else { "the operator lets builds begin again" }
        );
        self.drained.store(drained, Ordering::Relaxed);
        self.show_readiness();
    }

    /// The refusal of builds while the daemon is drained, else `None`. The message names the `daemon`, `builder` or `router`.
    #[must_use]
    pub fn refuses(&self, daemon: &str) -> Option<Box<Refuse>> {
        self.drained.load(Ordering::Relaxed).then(|| {
            ErrorReport::new(SqlState::CANNOT_CONNECT_NOW, format!("{daemon} takes no builds at the moment"))
                .hint("Its operator has drained it; `lantern-index drain --undo` lets it take builds again.")
                .refuse(30_000)
        })
    }

    /// Cancels builds by their id, waiting or running.
    ///
    /// # Errors
    /// [`NotCancelled`]
    pub fn cancel(&self, build: &str) -> Result<(), NotCancelled> {
        let state = lock(&self.state);
        let running = state.running.values().filter(|running| running.subject.build == build);
        if let Some(builder) = running.clone().find_map(|running| running.elsewhere.get()) {
            return Err(NotCancelled::Elsewhere { build: build.to_owned(), builder: builder.clone() });
        }
        let running = running.map(|it| &it.cancel);
        let waiting = state.queue.values().filter(|waiting| waiting.subject.build == build).map(|it| &it.cancel);
        let tokens: Vec<CancellationToken> = running.chain(waiting).cloned().collect();
        drop(state);
        if tokens.is_empty() {
            return Err(NotCancelled::Unknown(build.to_owned()));
        }
        tokens.iter().for_each(CancellationToken::cancel);
        tracing::info!(build, "cancelled by the operator");
        Ok(())
    }

    /// Whether the daemon accepts builds.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        match self.readiness.load(Ordering::Relaxed) {
            0 => Readiness::Starting,
            1 if self.drained.load(Ordering::Relaxed) => Readiness::Draining,
            1 => Readiness::Ready,
            _ => Readiness::Draining,
        }
    }

    /// Sets the number of threads for builds.
    pub fn set_threads(&self, threads: usize) {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        self.threads.store(threads, Ordering::Relaxed);
        self.metrics.threads.set(threads.into());
        lock(&self.state).set_threads(threads);
    }

    /// Sets the limit of memory that all builds together may reserve, and a function that returns the bytes reserved, which must not
    /// block. They may be less than the sum over running builds: a build's memory is released before its last pages are sent.
    pub fn set_memory(&self, limit: u64, reserved: impl Fn() -> u64 + Send + Sync + 'static) {
        lock(&self.state).memory_limit = Some(limit);
        self.metrics.memory_limit.set(as_gauge(limit));
        *lock(&self.reserved) = Some(Box::new(reserved));
    }

    /// For a router: sets a function that returns its builders for status, which must not block.
    pub fn set_builders(&self, read: impl Fn() -> Vec<BuilderReport> + Send + Sync + 'static) {
        *lock(&self.builders) = Some(Box::new(read));
    }

    /// Sets the TLS configuration, for the certificate's expiry date.
    pub fn set_tls(&self, tls: Arc<Tls>) {
        // Called once; later calls have no effect.
        let _ = self.tls.set(tls);
    }

    /// When the certificate expires, in seconds since 1970.
    fn certificate_expiry(&self) -> Option<i64> {
        Some(self.tls.get()?.validity()?.1)
    }

    /// Adds a client's request for a build, and records the build's id in the session's tracing span. Control characters in the label are
    /// replaced; the label is dropped unless labels are shown.
    #[must_use]
    pub fn queue(self: &Arc<Self>, mut subject: Subject) -> Queued {
        tracing::Span::current().record("build", &subject.build);
        subject.label = subject.label.filter(|label| self.labels && !label.is_empty()).map(|label| printable(&label));
        let waiting = Arc::new(Waiting::new(subject));
        let mut state = lock(&self.state);
        let key = state.enter(waiting.clone());
        self.metrics.queued.set(state.queue.len() as i64);
        drop(state);
        Queued { activity: self.clone(), key, waiting, settled: false }
    }

    /// All metrics in Prometheus' text format.
    ///
    /// # Errors
    /// Never in practice: only a metric without samples.
    pub fn exposition(&self) -> Result<String, prometheus::Error> {
        self.metrics.memory_reserved.set(as_gauge(self.reserved()));
        self.metrics.set_certificate_expiry(self.certificate_expiry());
        self.metrics.render()
    }

    /// Lantern's status code, and when it last changed, in ms since 1970.
    ///
    /// Codes: 0 no build yet, 1 builds are running, 2 the last build did not succeed, 3 it succeeded.
    #[must_use]
    pub fn status(&self) -> (u8, u64) {
        lock(&self.state).status()
    }

    /// The content of `/status`.
    #[must_use]
    pub fn report(&self) -> Report {
        let builders = lock(&self.builders).as_ref().map(|read| read()).unwrap_or_default();
        let throughput = lock(&self.throughput).report();
        let reserved_bytes = self.reserved();
        let state = lock(&self.state);
        let (status, status_updated_at) = state.status();
        let builds: Vec<_> = state.running.values().map(|build| build.report(&state.phase_rates)).collect();
        Report {
            version: REPORT_VERSION,
            role: self.role,
            software: self.version.clone(),
            readiness: self.readiness(),
            status,
            status_updated_at,
            now_ms: now_ms(),
            started_ms: self.started_ms,
            threads: self.threads.load(Ordering::Relaxed),
            connections: u64::try_from(self.metrics.connections.get()).unwrap_or(0),
            cpu_seconds: crate::metrics::cpu_seconds(),
            memory: MemoryReport {
                limit_bytes: state.memory_limit,
                reserved_bytes,
                resident_bytes: crate::metrics::resident_bytes(),
            },
            queue: state.queue(&builds),
            builds,
            ended: state.ended(),
            throughput,
            certificate_expires_ms: self.certificate_expiry().and_then(|at| u64::try_from(at).ok()).map(|at| at * 1000),
            builders,
        }
    }

    /// Samples the throughput; the status server does so once a second.
    pub(crate) fn sample(&self) {
        let now = Instant::now();
        let state = lock(&self.state);
        state.running.values().for_each(|build| self.metrics.elements(build.sample(now)));
        drop(state);
        let totals = Totals {
            rows: self.metrics.tuples_received.get(),
            elements: self.metrics.graph_elements(),
            pages: self.metrics.pages_sent.get(),
        };
        lock(&self.throughput).sample(now, totals);
    }

    fn begin(&self, key: u64, build: &Arc<Build>) {
        self.change(|state| state.begin(key, build.clone()));
    }

    fn end(&self, key: u64, stage: &Stage, report: EndedReport) {
        self.metrics.ended(&report);
        log(&report);
        self.change(|state| state.end(key, &stage.spent, report));
    }

    fn refuse(&self, key: u64, reason: Refusal, text: String) {
        self.metrics.refused(reason);
        self.change(|state| state.end_waiting(key, Outcome::Refused, text));
    }

    fn end_waiting(&self, key: u64, outcome: Outcome, reason: String) {
        self.metrics.count(outcome);
        self.change(|state| state.end_waiting(key, outcome, reason));
    }

    /// Bytes of memory reserved by builds; for a router, on its builders.
    fn reserved(&self) -> u64 {
        let read = lock(&self.reserved).as_ref().map(|read| read());
        read.unwrap_or_else(|| lock(&self.state).reserved())
    }

    /// Changes the state and updates the gauges.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        change(&mut state);
        self.metrics.queued.set(state.queue.len() as i64);
        self.metrics.active.set(state.running.len() as i64);
    }
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activity")
            .field("role", &self.role)
            .field("readiness", &self.readiness())
            .finish_non_exhaustive()
    }
}

/// Logs the summary of a build.
fn log(report: &EndedReport) {
    let EndedReport { subject, phases, .. } = report;
    tracing::info!(
        build = subject.build,
        client = subject.client,
        label = subject.label.as_deref().unwrap_or(""),
        value_type = subject.value_type,
        metric = subject.metric,
        dims = subject.dims,
        m = subject.m,
        ef_construction = subject.ef_construction,
        outcome = report.outcome.name(),
        reason = report.reason.as_deref().unwrap_or(""),
        rows = report.rows,
        elements = report.elements,
        pages = report.pages,
        memory = report.memory_bytes,
        seconds_waited = report.waited_seconds,
        seconds = report.seconds,
        seconds_rows = phases.rows,
        seconds_graph = phases.graph,
        seconds_repair = phases.repair,
        seconds_order = phases.order,
        seconds_pages = phases.pages,
        "build ended"
    );
}

fn as_gauge(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The first 200 characters of a peer's text, with control and bidirectional characters replaced.
#[must_use]
pub fn printable(text: &str) -> String {
    harmless(text).chars().take(200).collect()
}

/// A text from elsewhere, made safe for a terminal: control and bidirectional characters are replaced.
#[must_use]
pub fn harmless(text: &str) -> String {
    let harmful = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if harmful(c) { '\u{fffd}' } else { c }).collect()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
