//! Which build gets which builder, and when builders start and stop: pure rules, without clock, network or tasks.
//!
//! The caller reports events, calls [`Scheduler::act`] and carries out the returned actions.

mod builders;
mod others;
mod queue;
mod rules;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use builders::{Entry, State};
pub(crate) use others::Others;
use queue::Waiting;
pub(crate) use queue::{Demand, Refusal, RequestId};
pub use rules::Rules;

use crate::spawner::{Outlook, SpawnError};

/// The scheduler's number for a builder.
pub(crate) type BuilderId = u64;

/// An action that the caller must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start a builder.
    Start { id: BuilderId, memory: u64 },
    /// Stop a builder, then call [`Scheduler::stopped`].
    Stop { id: BuilderId },
    /// Hand an idle builder over to another router, or stop it if that is not possible; then call [`Scheduler::stopped`].
    LetGo { id: BuilderId },
    /// Give the builder to the request, until [`Scheduler::given_back`].
    Grant { request: RequestId, id: BuilderId },
    /// Refuse the request.
    Refuse { request: RequestId, refusal: Refusal },
}

/// The state of all builders and requests.
#[derive(Debug)]
pub(crate) struct Scheduler {
    rules: Rules,
    builders: HashMap<BuilderId, Entry>,
    queue: Vec<Waiting>,
    next_builder: BuilderId,
    next_request: RequestId,
    /// The number of consecutive failed starts.
    failures: u32,
    last_failure: Option<SpawnError>,
    /// The least memory of the builders that failed to start: what prevents these need not prevent smaller ones.
    failed_memory: u64,
    /// The end of the pause after a failed start.
    not_before: Option<Instant>,
    /// Numbers of other routers' builders, which count towards `max_builders`.
    others: Others,
    /// The router is shutting down: builders finish their builds and are then stopped.
    draining: bool,
}

impl Scheduler {
    /// A scheduler without builders and requests.
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            builders: HashMap::new(),
            queue: Vec::new(),
            next_builder: 1,
            next_request: 1,
            failures: 0,
            last_failure: None,
            failed_memory: 0,
            not_before: None,
            others: Others::default(),
            draining: false,
        }
    }

    /// Queues a request for a builder.
    ///
    /// # Errors
    /// The client has reached a limit and cannot wait.
    pub(crate) fn ask(&mut self, demand: Demand) -> Result<RequestId, Refusal> {
        let id = self.next_request;
        self.next_request += 1;
        let waiting = Waiting { id, demand, starting_since: None };
        if waiting.demand.again {
            // It was admitted and had its turn: it is first, after others that lost their builder.
            let place = self.queue.partition_point(|earlier| earlier.demand.again);
            self.queue.insert(place, waiting);
            return Ok(id);
        }
        self.queue.push(waiting);
        match self.refusal() {
            Some(refusal) => {
                self.queue.pop();
                Err(refusal)
            }
            None => Ok(id),
        }
    }

    /// Withdraws a waiting request.
    pub(crate) fn leave(&mut self, request: RequestId) {
        self.queue.retain(|waiting| waiting.id != request);
    }

    /// Reports that a builder has started.
    pub(crate) fn started(&mut self, id: BuilderId, memory: u64, now: Instant) {
        if self.failure_counts_for(memory) {
            (self.failures, self.last_failure, self.failed_memory, self.not_before) = (0, None, 0, None);
        }
        if let Some(entry) = self.builders.get_mut(&id) {
            (entry.memory, entry.state) = (memory, State::Idle { since: now });
        }
    }

    /// Reports that a builder has failed to start and no longer exists.
    pub(crate) fn failed(&mut self, id: BuilderId, error: SpawnError, now: Instant) {
        let memory = self.builders.remove(&id).map_or(0, |entry| entry.memory);
        if matches!(error.outlook, Outlook::Full | Outlook::Shared) {
            (self.last_failure, self.not_before) = (Some(error), Some(now + self.rules.back_off));
            // The room is lacking for all sizes, and earlier failures say nothing about it.
            (self.failures, self.failed_memory) = (0, 0);
            return;
        }
        if self.failures == 0 || memory < self.failed_memory {
            // Failures of larger builders do not count for this size: restart the back-off.
            (self.failures, self.failed_memory) = (0, memory);
        }
        if error.outlook == Outlook::Quota && !self.builders.is_empty() {
            // Block all sizes: a smaller builder would take the quota about to be freed for this one.
            self.failed_memory = 0;
        }
        self.failures += 1;
        let exponent = self.failures.saturating_sub(1).min(16);
        let pause = (self.rules.back_off * 2u32.pow(exponent)).min(self.rules.back_off_most);
        self.not_before = Some(now + pause);
        self.last_failure = Some(error);
    }

    /// Adds a builder that an earlier router started. `outdated`: it may finish its build, but gets no other.
    pub(crate) fn adopt(&mut self, memory: u64, outdated: bool) -> BuilderId {
        let id = self.new_builder(memory, State::Finishing);
        if let Some(entry) = self.builders.get_mut(&id) {
            entry.outdated = outdated;
        }
        id
    }

    /// Reports that the session of a build has ended; the builder may still work on the build.
    pub(crate) fn given_back(&mut self, id: BuilderId) {
        self.set(id, State::Finishing);
    }

    /// Reports that a builder, given back or adopted, has no build any more.
    pub(crate) fn finished(&mut self, id: BuilderId, now: Instant) {
        self.set(id, State::Idle { since: now });
    }

    /// Reports that a builder is lost. It will be stopped in case it still runs.
    pub(crate) fn lost(&mut self, id: BuilderId) {
        self.set(id, State::Lost);
    }

    /// Reports that a builder no longer exists.
    pub(crate) fn stopped(&mut self, id: BuilderId) {
        self.builders.remove(&id);
        self.expect_room();
    }

    /// A builder of any router is gone. If there was no room for another one, the next attempt, without a pause, shows whether there is now.
    fn expect_room(&mut self) {
        if self.lacks_quota() || self.others_have_all() {
            // One failure remains, so that no spare builder is started at the same time, which would take the room.
            (self.failures, self.last_failure, self.not_before) = (self.failures.min(1), None, None);
        }
    }

    /// The actions to carry out now. The scheduler takes them as under way.
    pub(crate) fn act(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.not_before = self.not_before.filter(|&until| now < until);
        for (&id, entry) in &mut self.builders {
            if matches!(entry.state, State::Lost) {
                entry.state = State::Stopping;
                actions.push(Action::Stop { id });
            }
        }
        self.serve(now, &mut actions);
        self.let_go(&mut actions);
        self.keep_ready(now, &mut actions);
        self.retire(now, &mut actions);
        actions
    }

    /// Grants idle builders, starts missing ones, and refuses requests that cannot be served.
    fn serve(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut starting: HashSet<BuilderId> =
            self.builders.iter().filter(|(_, entry)| entry.is_starting()).map(|(&id, _)| id).collect();
        // Each builder that is being stopped makes room for one request.
        let mut stopping = self.count(Entry::is_stopping);
        let turns =
            self.fair_order().into_iter().map(|turn| (turn.build.id, turn.build.demand.clone(), turn.held_back));
        for (request, demand, held_back) in turns.collect::<Vec<_>>() {
            if held_back {
                self.track_start(request, false, now);
                continue;
            }
            if let Some(id) = self.free_for(&demand) {
                self.set(id, State::Taken { client: demand.client.key(), memory: demand.memory });
                self.leave(request);
                actions.push(Action::Grant { request, id });
                continue;
            }
            let need = self.rules.clamp(demand.machine);
            // A starting builder is reserved for the first request in the queue that it can serve.
            let expected = starting.iter().copied().filter(|id| self.builders[id].memory >= need).min();
            if let Some(id) = expected {
                starting.remove(&id);
                self.track_start(request, true, now);
            } else if let Some(error) = self.broken(need, now).filter(|_| !self.may_free_quota()) {
                self.leave(request);
                actions.push(Action::Refuse { request, refusal: Refusal::NoStart(error, self.retry_after(now)) });
                continue;
            } else if let Some(id) = self.smallest(0, Entry::is_idle).filter(|_| self.has_no_place(need)) {
                // No idle builder is large enough: stop one to make room for a larger one, unless one is being stopped.
                if stopping > 0 {
                    stopping -= 1;
                } else {
                    self.set(id, State::Stopping);
                    actions.push(Action::Stop { id });
                }
            } else if self.builders.len() < self.rules.max_builders {
                let is_failing = self.failures > 0 && self.failure_counts_for(need);
                let waits_for_others = self.others_have_all() || (is_failing && self.may_wait(need));
                self.track_start(request, !waits_for_others, now);
                if self.may_start(need, now) {
                    actions.push(self.start(need));
                }
            } else {
                // All builders are busy: this wait does not count towards the start timeout.
                self.track_start(request, false, now);
            }
            if self.waited_for_start(request, now) >= self.rules.start_timeout {
                self.leave(request);
                let failure = self.last_failure.clone().filter(|_| self.failure_counts_for(need));
                let refusal = Refusal::Late(self.rules.start_timeout, failure);
                actions.push(Action::Refuse { request, refusal });
            }
        }
    }

    /// Stops or hands over idle builders: all while the router drains, else those that another router
    /// waits for and those of an earlier template.
    fn let_go(&mut self, actions: &mut Vec<Action>) {
        for (&id, entry) in &mut self.builders {
            if !entry.is_idle() {
                continue;
            }
            if entry.outdated {
                actions.push(Action::Stop { id });
            } else if self.draining || entry.wanted {
                actions.push(Action::LetGo { id });
            } else {
                continue;
            }
            entry.state = State::Stopping;
        }
    }

    fn keep_ready(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let next = self.fair_order().iter().filter(|turn| !turn.held_back).count();
        loop {
            let ready = self.others.ready + self.count(|entry| entry.is_idle() || entry.is_starting());
            let spare = ready.saturating_sub(next) < self.rules.spare_builders;
            let all = self.others.all + self.builders.len();
            let wanted = !self.draining && (all < self.rules.min_builders || spare);
            // Within a shared quota a start would ask another router for a builder: not without a waiting client.
            if !wanted
                || all >= self.rules.max_builders
                || !self.may_start(self.rules.clamp(0), now)
                || self.shares_quota()
            {
                return;
            }
            actions.push(self.start(0));
        }
    }

    fn retire(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while let Some((id, at)) = self.next_to_retire()
            && now >= at
        {
            self.set(id, State::Stopping);
            actions.push(Action::Stop { id });
        }
    }

    /// The longest idle builder that exceeds the minimum and the spares, and when it is due to be stopped.
    ///
    /// The minimum applies to all routers together. Each router counts only the builders of routers before it in the shared order:
    /// otherwise two routers could each rely on the other's builders and stop their own.
    fn next_to_retire(&self) -> Option<(BuilderId, Instant)> {
        let enough = self.others.all_before + self.count(|entry| !entry.is_stopping()) > self.rules.min_builders
            && self.others.idle_before + self.count(Entry::is_idle) > self.rules.spare_builders;
        self.longest_idle().filter(|_| enough).map(|(id, since)| (id, since + self.rules.idle_ttl))
    }

    /// When [`act`](Self::act) must be called next, even without an event.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let idle = self.next_to_retire().map(|(_, at)| at);
        let late = self.queue.iter().filter_map(|waiting| Some(waiting.starting_since? + self.rules.start_timeout));
        idle.into_iter().chain(late).chain(self.not_before).min()
    }

    fn start(&mut self, need: u64) -> Action {
        let memory = self.rules.clamp(need);
        let id = self.new_builder(memory, State::Starting);
        Action::Start { id, memory }
    }

    fn new_builder(&mut self, memory: u64, state: State) -> BuilderId {
        let id = self.next_builder;
        self.next_builder += 1;
        self.builders.insert(id, Entry { memory, state, outdated: false, wanted: false });
        id
    }

    /// Whether a builder of this size may be started. After a failure that counts for it, only one starts at a time, after a pause.
    fn may_start(&self, memory: u64, now: Instant) -> bool {
        if !self.failure_counts_for(memory) {
            return true;
        }
        let pause = self.not_before.is_some_and(|until| now < until);
        let trouble = self.failures > 0 || self.others_have_all() || self.shares_quota();
        !pause && (!trouble || self.count(|entry| entry.is_starting() && self.failure_counts_for(entry.memory)) == 0)
    }

    /// Whether failed starts count for this size: it is at least as large as the smallest that failed. True if none failed.
    fn failure_counts_for(&self, memory: u64) -> bool {
        memory >= self.failed_memory
    }

    /// Whether builders of this and other routers have reached `max_builders`, or use up a quota for a builder of this size.
    fn has_no_place(&self, memory: u64) -> bool {
        self.others.all + self.builders.len() >= self.rules.max_builders
            || self.others_have_all()
            || (self.lacks_quota() && self.failure_counts_for(memory))
    }

    /// Whether a quota leaves no room, and the end of an idle builder of this router's own may make some.
    fn may_free_quota(&self) -> bool {
        self.lacks_quota() && (self.count(Entry::is_idle) > 0 || self.count(Entry::is_stopping) > 0)
    }

    /// Whether the last attempt failed because of a quota.
    fn lacks_quota(&self) -> bool {
        self.last_failure.as_ref().is_some_and(|error| matches!(error.outlook, Outlook::Quota | Outlook::Shared))
    }

    /// Whether the last attempt failed because other routers' builders had reached `max_builders`.
    fn others_have_all(&self) -> bool {
        self.last_failure.as_ref().is_some_and(|error| error.outlook == Outlook::Full)
    }

    /// Whether the last attempt failed because other routers' builders and this one's use up a quota.
    fn shares_quota(&self) -> bool {
        self.last_failure.as_ref().is_some_and(|error| error.outlook == Outlook::Shared)
    }

    /// Whether a busy builder is large enough to wait for, or its end may make room within a quota.
    fn may_wait(&self, memory: u64) -> bool {
        let serves = |entry: &Entry| !entry.outdated && entry.memory >= memory;
        self.count(|entry| entry.is_busy() && (serves(entry) || self.lacks_quota())) > 0
    }

    /// The last error, if it would repeat at another start of this size and there is no busy builder to wait for.
    fn broken(&self, memory: u64, now: Instant) -> Option<SpawnError> {
        let error = self.last_failure.as_ref().filter(|_| self.failure_counts_for(memory) && !self.may_wait(memory))?;
        let in_vain = error.outlook == Outlook::Lasting || self.failures >= self.rules.breaker;
        (in_vain && self.not_before.is_some_and(|until| now < until)).then(|| error.clone())
    }

    fn retry_after(&self, now: Instant) -> Duration {
        self.not_before.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}
