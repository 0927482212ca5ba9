use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use protocol::{Done, Phase};
use tokio_util::sync::CancellationToken;

use super::phase_rates::{self, PhaseRates};
use super::{Activity, now_ms};
use crate::report::{BuildReport, EndedReport, Subject};
use crate::{Outcome, lock};

/// The number of samples, one per second, over which a rate is measured.
const RATE_SAMPLES: usize = 10;

/// A build's progress, and the time spent in each phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The current phase.
    pub phase: Phase,
    /// Steps of the phase that are done: rows, elements or pages.
    pub done: u64,
    /// Steps of the phase; 0 if not known.
    pub total: u64,
    /// The time spent in each phase so far, in the order of their numbers.
    pub spent: [Duration; 5],
}

/// Counts of elements in the phases graph, repair and order.
pub(super) type Elements = [u64; 3];

/// The phases whose steps are elements; in the phase graph of a check, they are pages.
pub(crate) const ELEMENT_PHASES: [Phase; 3] = [Phase::Graph, Phase::Repair, Phase::Order];

type ReadStage = Box<dyn Fn() -> Stage + Send + Sync>;

/// A running build. Its session updates the counters, the status server reads them.
pub(super) struct Build {
    pub(super) subject: Subject,
    /// Cancelled when the daemon's operator cancels the build.
    pub(super) cancel: CancellationToken,
    /// For a router: the builder that has the build.
    builder: OnceLock<String>,
    /// The builder to which the client was redirected, if this daemon does not relay the build.
    pub(super) elsewhere: OnceLock<String>,
    read: ReadStage,
    since: Instant,
    started_ms: u64,
    waited: Duration,
    rows: AtomicU64,
    elements: AtomicU64,
    pages: AtomicU64,
    /// The graph's self-recall and recall.
    quality: Mutex<[Option<f64>; 2]>,
    memory: AtomicU64,
    history: Mutex<History>,
}

/// Earlier samples.
#[derive(Default)]
struct History {
    fraction: f64,
    /// Elements counted in the phases graph, repair and order.
    counted: [u64; 3],
    samples: VecDeque<(Instant, Phase, u64)>,
    /// The phase and its steps when they last changed, and when that was.
    moved: Option<(Instant, Phase, u64)>,
}

impl Build {
    pub(super) fn new(
        subject: Subject,
        cancel: CancellationToken,
        waited: Duration,
        memory: u64,
        read: ReadStage,
    ) -> Self {
        Self {
            subject,
            cancel,
            builder: OnceLock::new(),
            elsewhere: OnceLock::new(),
            read,
            since: Instant::now(),
            started_ms: now_ms(),
            waited,
            rows: AtomicU64::new(0),
            elements: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            memory: AtomicU64::new(memory),
            quality: Mutex::default(),
            history: Mutex::default(),
        }
    }

    pub(super) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// Samples the progress for the rate, and returns the elements processed since the last sample, by phase.
    pub(super) fn sample(&self, now: Instant) -> Elements {
        let stage = (self.read)();
        let mut history = lock(&self.history);
        history.unchanged(&stage);
        if history.samples.len() == RATE_SAMPLES {
            history.samples.pop_front();
        }
        history.samples.push_back((now, stage.phase, stage.done));
        history.count(stage.phase, stage.done)
    }

    /// The elements of a finished graph that no sample has counted.
    fn rest(&self, elements: u64) -> Elements {
        let mut history = lock(&self.history);
        let mut rest = Elements::default();
        for phase in ELEMENT_PHASES {
            let [graph, repair, order] = history.count(phase, elements);
            rest = [rest[0] + graph, rest[1] + repair, rest[2] + order];
        }
        rest
    }

    pub(super) fn report(&self, phase_rates: &PhaseRates) -> BuildReport {
        let stage = (self.read)();
        let rows = self.rows.load(Ordering::Relaxed);
        let elapsed = self.since.elapsed();
        let mut history = lock(&self.history);
        let rate = history.rate(&stage);
        let unchanged = history.unchanged(&stage);
        let eta = eta(&stage, rate, unchanged, rows, &self.subject, phase_rates);
        if let Some(eta) = eta {
            let elapsed = elapsed.as_secs_f64();
            history.fraction = history.fraction.max(elapsed / (elapsed + eta).max(1e-3)).min(0.999);
        }
        BuildReport {
            subject: self.subject.clone(),
            phase: phase_name(stage.phase).to_owned(),
            done: stage.done,
            total: stage.total,
            fraction: history.fraction,
            rows,
            rate,
            eta_seconds: eta,
            elapsed_seconds: elapsed.as_secs_f64(),
            started_ms: self.started_ms,
            memory_bytes: self.memory(),
            builder: self.builder.get().cloned(),
        }
    }

    /// The final stage of a build, its report, and the elements not counted yet.
    fn ended(&self, outcome: Outcome, reason: Option<String>) -> (Stage, EndedReport, Elements) {
        let stage = (self.read)();
        let [self_recall, recall] = *lock(&self.quality);
        let report = EndedReport {
            subject: self.subject.clone(),
            outcome,
            reason,
            ended_ms: now_ms(),
            waited_seconds: self.waited.as_secs_f64(),
            seconds: self.since.elapsed().as_secs_f64(),
            phases: phase_rates::by_name(&stage.spent),
            rows: self.rows.load(Ordering::Relaxed),
            elements: self.elements.load(Ordering::Relaxed),
            pages: self.pages.load(Ordering::Relaxed),
            memory_bytes: self.memory(),
            self_recall,
            recall,
        };
        let rest = if outcome == Outcome::Succeeded { self.rest(report.elements) } else { Elements::default() };
        (stage, report, rest)
    }
}

impl History {
    /// Counts elements up to `done` in a phase; returns the new ones.
    fn count(&mut self, phase: Phase, done: u64) -> Elements {
        let mut new = Elements::default();
        if let Some(index) = ELEMENT_PHASES.iter().position(|known| *known == phase) {
            new[index] = done.saturating_sub(self.counted[index]);
            self.counted[index] += new[index];
        }
        new
    }

    /// The time since the phase or its steps last changed.
    fn unchanged(&mut self, stage: &Stage) -> Duration {
        match self.moved {
            Some((since, phase, done)) if (phase, done) == (stage.phase, stage.done) => since.elapsed(),
            _ => {
                self.moved = Some((Instant::now(), stage.phase, stage.done));
                Duration::ZERO
            }
        }
    }

    /// Steps per second over the last samples of this phase, or over the whole phase if there are none.
    fn rate(&self, stage: &Stage) -> f64 {
        let oldest = self.samples.iter().find(|(_, phase, _)| *phase == stage.phase);
        let (seconds, steps) = match oldest {
            Some((then, _, done)) if then.elapsed() >= Duration::from_millis(500) => {
                (then.elapsed().as_secs_f64(), stage.done.saturating_sub(*done))
            }
            _ => (stage.spent[stage.phase as usize - 1].as_secs_f64(), stage.done),
        };
        if seconds > 0.0 { steps as f64 / seconds } else { 0.0 }
    }
}

/// Estimates the remaining seconds: of this phase from its rate, of later ones from earlier builds. `None` if nothing is known.
fn eta(
    stage: &Stage,
    rate: f64,
    unchanged: Duration,
    rows: u64,
    subject: &Subject,
    phase_rates: &PhaseRates,
) -> Option<f64> {
    let all_rows = if stage.phase == Phase::Rows { rows.max(subject.expected_rows) } else { rows };
    let left = stage.total.saturating_sub(stage.done) as f64;
    let here = if stage.phase == Phase::Rows {
        if stage.total == 0 || rate <= 0.0 {
            return None;
        }
        left / rate
    } else {
        // Blend: at first earlier builds have more weight than the rate so far, at the end less.
        let spent = stage.spent[stage.phase as usize - 1].as_secs_f64();
        let expected = phase_rates.of(stage.phase, subject, all_rows);
        let share = if stage.total > 0 { (stage.done as f64 / stage.total as f64).min(1.0) } else { 0.0 };
        let trust = share.max((spent / expected.max(1e-9)).min(1.0));
        let by_steps = if share > 0.0 { spent / share * (1.0 - share) } else { 0.0 };
        // Work that does not count as steps may take as long again as it has taken so far.
        let by_steps = by_steps.max(unchanged.as_secs_f64());
        trust * by_steps + (1.0 - trust) * (expected - spent).max(0.0)
    };
    Some(here + phase_rates.after(stage.phase, subject, all_rows))
}

/// The name of a phase in status, metrics and logs.
pub(crate) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Rows => "rows",
        Phase::Graph => "graph",
        Phase::Repair => "repair",
        Phase::Order => "order",
        Phase::Pages => "pages",
    }
}

/// The session's handle of a running build. If it is dropped without [`Running::end`], the build counts as failed.
pub struct Running {
    pub(super) activity: Arc<Activity>,
    pub(super) key: u64,
    pub(super) build: Arc<Build>,
    pub(super) outcome: Outcome,
    pub(super) reason: Option<String>,
}

impl Running {
    /// Waits until the daemon's operator cancels the build.
    pub async fn cancelled(&self) {
        self.build.cancel.cancelled().await;
    }

    /// Records which builder a router has granted.
    pub fn set_builder(&self, builder: &str) {
        self.build.builder.get_or_init(|| builder.to_owned());
    }

    /// Records that the client was redirected to `builder`, which alone can cancel the build.
    pub fn set_elsewhere(&self, builder: &str) {
        self.build.elsewhere.get_or_init(|| builder.to_owned());
    }

    /// Counts rows received from the client.
    pub fn add_rows(&self, count: u64) {
        self.build.rows.fetch_add(count, Ordering::Relaxed);
        self.activity.metrics().tuples_received.inc_by(count);
    }

    /// Counts index pages sent to the client.
    pub fn add_pages(&self, count: u64) {
        self.build.pages.fetch_add(count, Ordering::Relaxed);
        self.activity.metrics().pages_sent.inc_by(count);
    }

    /// Counts pages of an index to check received from the client.
    pub fn add_checked_pages(&self, count: u64) {
        self.activity.metrics().pages_received.inc_by(count);
    }

    /// Sets the number of elements of the finished graph, its self-recall and its recall.
    pub fn set_graph(&self, done: &Done) {
        self.build.elements.store(done.elements, Ordering::Relaxed);
        let shares = [Some(done.self_recall_ppm), done.recall_ppm].map(|ppm| ppm.map(|ppm| f64::from(ppm) / 1e6));
        *lock(&self.build.quality) = shares;
        self.activity.metrics().graph_quality(shares);
    }

    /// Sets the memory that is reserved for this build, in bytes.
    pub fn set_memory(&self, bytes: u64) {
        self.build.memory.store(bytes, Ordering::Relaxed);
    }

    /// Ends the build, whose threads have ended already; `reason` says why it did not succeed.
    pub fn end(mut self, outcome: Outcome, reason: Option<String>) {
        self.outcome = outcome;
        self.reason = reason;
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("subject", &self.build.subject).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (stage, report, rest) = self.build.ended(self.outcome, self.reason.take());
        self.activity.metrics().elements(rest);
        self.activity.end(self.key, &stage, report);
    }
}
