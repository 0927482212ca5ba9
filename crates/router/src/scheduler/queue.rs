use std::sync::Arc;
use std::time::{Duration, Instant};

use service::{Asks, Client, Share, Turn, fair_order};

use super::{BuilderId, Scheduler};
use crate::spawner::SpawnError;

/// The scheduler's number for a request.
pub(crate) type RequestId = u64;

/// A request for a builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The client, whose limits and fair share apply.
    pub(crate) client: Client,
    /// Memory in bytes that a builder reserves for the build, and that counts towards the client's limit.
    pub(crate) memory: u64,
    /// Memory in bytes of a builder on which the build fits.
    pub(crate) machine: u64,
    /// Whether an earlier request for the same build was granted a builder, which was lost before it took the build.
    pub(crate) again: bool,
}

/// [`Demand::memory`] of a build of unknown size, whose client has no limit.
const ANY_MEMORY: u64 = u64::MAX;

impl Demand {
    /// The demand of a build that needs `memory` bytes, or [`ANY_MEMORY`]: then it may need all that its client may have.
    pub(crate) fn new(client: Client, memory: u64, machine_for: fn(u64) -> u64) -> Self {
        let is_limited = memory == ANY_MEMORY && client.limits.memory > 0;
        let memory = if is_limited { client.limits.memory } else { memory };
        Self { client, memory, machine: machine_for(memory), again: false }
    }

    /// Memory in bytes that the build needs; 0 if it is not known.
    pub(crate) fn known_memory(&self) -> u64 {
        if self.memory == ANY_MEMORY { 0 } else { self.memory }
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
    /// When the start timeout began; `None` while no builder is to start for the request.
    pub(super) starting_since: Option<Instant>,
}

impl Scheduler {
    /// Waiting requests, in the order in which they are served, with the client whose own limits keep the request waiting, if they do.
    pub(crate) fn waiting(&self) -> Vec<(RequestId, Option<Arc<str>>)> {
        let turn = |turn: Turn<'_, Waiting>| (turn.build.id, turn.held_back.then(|| turn.build.demand.client.key()));
        self.fair_order().into_iter().map(turn).collect()
    }

    /// Whether there are as many builders as allowed, and none is starting: a request that waits needs the end of a build, or of an idle builder.
    pub(crate) fn is_full(&self) -> bool {
        self.builders.len() >= self.rules.max_builders && self.count(|entry| entry.is_starting()) == 0
    }

    /// The error of the last start, if it failed.
    pub(crate) fn last_failure(&self) -> Option<&SpawnError> {
        self.last_failure.as_ref()
    }

    /// Whether the failure of the last start prevents a builder for the request, too.
    pub(crate) fn is_failing(&self, request: RequestId) -> bool {
        let waiting = self.queue.iter().find(|waiting| waiting.id == request);
        waiting.is_some_and(|waiting| self.failure_counts_for(self.rules.clamp(waiting.demand.machine)))
    }

    /// Orders requests by their client's running builds, fewest first, then by waiting time, longest first.
    pub(super) fn fair_order(&self) -> Vec<Turn<'_, Waiting>> {
        let asks = |Waiting { demand, .. }: &Waiting| Asks {
            client: demand.client.key(),
            limits: demand.client.limits,
            memory: demand.memory,
        };
        fair_order(&self.queue, asks, |client| self.share_of(client))
    }

    /// Why the last request of the queue is refused; `None` if it may wait, or need not.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let (Waiting { id, demand, .. }, earlier) = self.queue.split_last()?;
        let (client, limits) = (demand.client.key(), demand.client.limits);
        if limits.hold_back(Share::default(), demand.memory) {
            return Some(Refusal::Beyond { needed: demand.memory, limit: limits.memory });
        }
        let waiting = earlier.iter().filter(|waiting| waiting.demand.client.key() == client).count();
        // The limit applies only to builds that must wait.
        let is_held_back = || self.fair_order().iter().any(|turn| turn.build.id == *id && turn.held_back);
        let must_wait = || is_held_back() || self.free_for(demand).is_none();
        (!limits.let_wait(waiting) && must_wait()).then_some(Refusal::Waiting(limits.waiting))
    }

    /// The client with the memory limit of its build on builder `id`: the client's own, less the memory of its other running builds.
    pub(crate) fn limited(&self, id: BuilderId, client: &Client) -> Client {
        let mut client = client.clone();
        if client.limits.memory > 0 {
            let others = self.share_without(id, &client.key()).memory;
            // 0 would mean no limit.
            client.limits.memory = client.limits.memory.saturating_sub(others).max(1);
        }
        client
    }

    /// Begins or continues a request's start timeout if a builder is to start for it, else ends it.
    pub(super) fn track_start(&mut self, request: RequestId, is_starting: bool, now: Instant) {
        if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.id == request) {
            waiting.starting_since = is_starting.then(|| waiting.starting_since.unwrap_or(now));
        }
    }

    pub(super) fn waited_for_start(&self, request: RequestId, now: Instant) -> Duration {
        let since = self.queue.iter().find(|waiting| waiting.id == request).and_then(|waiting| waiting.starting_since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}
