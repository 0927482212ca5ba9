use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::phase_rates::PhaseRates;
use super::{Build, Waiting, now_ms};
use crate::Outcome;
use crate::report::{BuildReport, EndedReport, PhaseSeconds, QueuedReport};

/// The number of ended builds that are shown.
const ENDED: usize = 40;
/// The number of refusals that are shown, limited separately: a client that keeps retrying must not displace builds.
const REFUSED: usize = 10;

/// The builds of a daemon, in order of arrival.
#[derive(Default)]
pub(super) struct State {
    pub(super) queue: BTreeMap<u64, Arc<Waiting>>,
    pub(super) running: BTreeMap<u64, Arc<Build>>,
    pub(super) memory_limit: Option<u64>,
    pub(super) phase_rates: PhaseRates,
    ended: VecDeque<EndedReport>,
    refused: VecDeque<EndedReport>,
    last: Option<Outcome>,
    updated_ms: u64,
    next_key: u64,
}

impl State {
    pub(super) fn new() -> Self {
        Self { updated_ms: now_ms(), ..Self::default() }
    }

    pub(super) fn set_threads(&mut self, threads: u32) {
        self.phase_rates = PhaseRates::new(threads);
    }

    pub(super) fn status(&self) -> (u8, u64) {
        let code = match (self.running.is_empty(), self.last) {
            (false, _) => 1,
            (true, None) => 0,
            (true, Some(Outcome::Succeeded)) => 3,
            (true, Some(_)) => 2,
        };
        (code, self.updated_ms)
    }

    pub(super) fn reserved(&self) -> u64 {
        self.running.values().map(|build| build.memory()).sum()
    }

    /// Waiting builds, next one first; those without a position last. Waiting times are estimated from the `running` builds.
    pub(super) fn queue(&self, running: &[BuildReport]) -> Vec<QueuedReport> {
        let mut queue: Vec<_> = self.queue.values().map(|waiting| waiting.report()).collect();
        queue.sort_by_key(|waiting| waiting.position.wrapping_sub(1));
        let mut ends: Vec<f64> = running.iter().filter_map(|build| build.eta_seconds).collect();
        ends.sort_unstable_by(f64::total_cmp);
        for waiting in &mut queue {
            let before = waiting.position.checked_sub(1).map(|before| before as usize);
            waiting.eta_seconds = before.and_then(|before| ends.get(before).copied());
        }
        queue
    }

    /// Ended builds, last one first.
    pub(super) fn ended(&self) -> Vec<EndedReport> {
        let mut ended: Vec<_> = self.ended.iter().chain(&self.refused).cloned().collect();
        ended.sort_by_key(|build| std::cmp::Reverse(build.ended_ms));
        ended
    }

    pub(super) fn enter(&mut self, waiting: Arc<Waiting>) -> u64 {
        self.next_key += 1;
        self.queue.insert(self.next_key, waiting);
        self.next_key
    }

    pub(super) fn begin(&mut self, key: u64, build: Arc<Build>) {
        self.queue.remove(&key);
        self.running.insert(key, build);
        self.updated_ms = now_ms();
    }

    pub(super) fn end(&mut self, key: u64, spent: &[Duration; 5], report: EndedReport) {
        self.running.remove(&key);
        if report.outcome == Outcome::Succeeded && report.has_made_pages() {
            self.phase_rates.learn(&report.subject, report.rows, spent);
        }
        if report.outcome != Outcome::Refused {
            self.last = Some(report.outcome);
        }
        self.updated_ms = now_ms();
        keep(&mut self.ended, report, ENDED);
    }

    /// Removes a build that has not begun from the queue. The status code does not change.
    pub(super) fn end_waiting(&mut self, key: u64, outcome: Outcome, reason: String) {
        let Some(waiting) = self.queue.remove(&key) else { return };
        let queued = waiting.report();
        let report = EndedReport {
            subject: queued.subject,
            outcome,
            reason: Some(reason),
            ended_ms: now_ms(),
            waited_seconds: queued.waiting_seconds,
            seconds: 0.0,
            phases: PhaseSeconds::default(),
            rows: 0,
            elements: 0,
            pages: 0,
            memory_bytes: queued.memory_bytes,
            self_recall: None,
            recall: None,
        };
        keep(&mut self.refused, report, REFUSED);
    }
}

fn keep(list: &mut VecDeque<EndedReport>, report: EndedReport, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(report);
}
