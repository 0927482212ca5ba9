use std::sync::Arc;
use std::time::{Duration, Instant};

use service::{Client, Share, fair_order};

use super::Scheduler;
use crate::spawner::SpawnError;

/// The scheduler's number for a request.
pub(crate) type RequestId = u64;

/// A request for a builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The client, whose limits and fair share apply.
    pub(crate) client: Client,
    /// Memory in bytes that the build needs.
    pub(crate) memory: u64,
}

/// [`Demand::memory`] of a build of unknown size.
const ANY_MEMORY: u64 = u64::MAX;

impl Demand {
    /// Memory in bytes that the build needs; 0 if it is not known.
    pub(crate) fn known_memory(&self) -> u64 {
        if self.memory == ANY_MEMORY { 0 } else { self.memory }
    }

    /// Bytes that count towards the client's limit; for a build of unknown size the whole limit.
    pub(super) fn counted_memory(&self) -> u64 {
        if self.memory == ANY_MEMORY { self.client.limits.memory } else { self.memory }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Builders cannot be started; a retry makes sense after this time.
    NoStart(SpawnError, Duration),
    /// No builder has become ready within this time; with the last error, if any.
    Late(Duration, Option<SpawnError>),
    /// The client's limit of waiting builds is reached.
    Waiting(u32),
    /// The build needs more memory than the client's limit.
    Beyond {
        /// Memory in bytes that the build needs.
        needed: u64,
        /// The client's limit in bytes.
        limit: u64,
    },
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) demand: Demand,
    /// When the start timeout began; `None` while all builders are busy.
    pub(super) starting_since: Option<Instant>,
}

impl Scheduler {
    /// Waiting requests, in the order in which they are served, with the client whose own limits keep the request waiting, if they do.
    pub(crate) fn waiting(&self) -> Vec<(RequestId, Option<Arc<str>>)> {
        let held_back = |demand: &Demand| self.is_held_back(demand).then(|| demand.client.key());
        self.fair_order().into_iter().map(|(id, demand)| (id, held_back(&demand))).collect()
    }

    /// Whether requests wait and all builders are busy.
    pub(crate) fn is_full(&self) -> bool {
        self.builders.len() >= self.rules.max_builders && self.count(|entry| entry.is_coming()) == 0
    }

    /// The error of the last start, if it failed.
    pub(crate) fn last_failure(&self) -> Option<&SpawnError> {
        self.last_failure.as_ref()
    }

    /// Orders requests by their client's running builds, fewest first, then by waiting time, longest first.
    pub(super) fn fair_order(&self) -> Vec<(RequestId, Demand)> {
        let running = |client: &str| self.share_of(client).builds;
        let order = fair_order(&self.queue, |waiting| waiting.demand.client.key(), running);
        order.into_iter().map(|waiting| (waiting.id, waiting.demand.clone())).collect()
    }

    /// The refusal of a client that cannot join the queue, if any.
    pub(super) fn refusal(&self, demand: &Demand) -> Option<Refusal> {
        let (client, limits) = (demand.client.key(), demand.client.limits);
        if limits.hold_back(Share::default(), demand.counted_memory()) {
            return Some(Refusal::Beyond { needed: demand.memory, limit: limits.memory });
        }
        let waiting = self.queue.iter().filter(|waiting| waiting.demand.client.key() == client).count();
        (!limits.let_wait(waiting)).then_some(Refusal::Waiting(limits.waiting))
    }

    /// Whether the client's own limits keep a build waiting.
    pub(super) fn is_held_back(&self, demand: &Demand) -> bool {
        demand.client.limits.hold_back(self.share_of(&demand.client.key()), demand.counted_memory())
    }

    pub(super) fn wait_for_start(&mut self, request: RequestId, now: Instant) {
        if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.id == request) {
            waiting.starting_since.get_or_insert(now);
        }
    }

    pub(super) fn wait_for_start_again(&mut self, request: RequestId) {
        if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.id == request) {
            waiting.starting_since = None;
        }
    }

    pub(super) fn waited_for_start(&self, request: RequestId, now: Instant) -> Duration {
        let since = self.queue.iter().find(|waiting| waiting.id == request).and_then(|waiting| waiting.starting_since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}
