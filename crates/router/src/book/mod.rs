//! Which build gets which builder, and when builders come and go: the rules alone, without clock, network or tasks.
//!
//! Whoever uses it reports what happened, calls [`Book::act`] and does what that returns.

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
pub(crate) use queue::{Refusal, RequestId, Wish};
pub(crate) use rules::Rules;

use crate::spawner::{Outlook, SpawnError};

/// The number of a builder in this book.
pub(crate) type BuilderId = u64;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start a builder.
    Start { id: BuilderId, memory: u64 },
    /// Take a builder away, then call [`Book::stopped`].
    Stop { id: BuilderId },
    /// Leave an idle builder to another router, or take it away where that cannot be; then call [`Book::stopped`].
    LetGo { id: BuilderId },
    /// Give the request the builder, until [`Book::given_back`].
    Grant { request: RequestId, id: BuilderId },
    /// Send the request away.
    Refuse { request: RequestId, refusal: Refusal },
}

/// All builders and requests.
#[derive(Debug)]
pub(crate) struct Book {
    rules: Rules,
    builders: HashMap<BuilderId, Entry>,
    queue: Vec<Waiting>,
    next_builder: BuilderId,
    next_request: RequestId,
    /// Starts that went wrong one after the other.
    failures: u32,
    last_failure: Option<SpawnError>,
    /// No start before.
    not_before: Option<Instant>,
    /// The builders of other routers that share the places.
    others: Others,
    /// The router ends: its builders finish their builds and then go.
    draining: bool,
}

impl Book {
    /// An empty book.
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            builders: HashMap::new(),
            queue: Vec::new(),
            next_builder: 1,
            next_request: 1,
            failures: 0,
            last_failure: None,
            not_before: None,
            others: Others::default(),
            draining: false,
        }
    }

    /// Somebody wants a builder.
    ///
    /// # Errors
    /// Why the client may not even wait.
    pub(crate) fn ask(&mut self, wish: Wish) -> Result<RequestId, Refusal> {
        if let Some(refusal) = self.refusal(&wish) {
            return Err(refusal);
        }
        let id = self.next_request;
        self.next_request += 1;
        self.queue.push(Waiting { id, wish, starting_since: None });
        Ok(id)
    }

    /// Somebody who waits wants none any more.
    pub(crate) fn leave(&mut self, request: RequestId) {
        self.queue.retain(|waiting| waiting.id != request);
    }

    /// A builder has started.
    pub(crate) fn started(&mut self, id: BuilderId, memory: u64, now: Instant) {
        (self.failures, self.last_failure, self.not_before) = (0, None, None);
        if let Some(entry) = self.builders.get_mut(&id) {
            (entry.memory, entry.state) = (memory, State::Idle { since: now });
        }
    }

    /// A builder has not started, and nothing is left of it.
    pub(crate) fn failed(&mut self, id: BuilderId, error: SpawnError, now: Instant) {
        self.builders.remove(&id);
        if error.outlook == Outlook::Full {
            (self.last_failure, self.not_before) = (Some(error), Some(now + self.rules.back_off));
            return;
        }
        self.failures += 1;
        let exponent = self.failures.saturating_sub(1).min(16);
        let pause = (self.rules.back_off * 2u32.pow(exponent)).min(self.rules.back_off_most);
        self.not_before = Some(now + pause);
        self.last_failure = Some(error);
    }

    /// A builder that was there before. `outdated`: only for the build that it may have.
    pub(crate) fn adopt(&mut self, memory: u64, outdated: bool) -> BuilderId {
        let id = self.new_builder(memory, State::Resting);
        if let Some(entry) = self.builders.get_mut(&id) {
            entry.outdated = outdated;
        }
        id
    }

    /// The build for which a builder was granted is over, but maybe not yet in the builder.
    pub(crate) fn given_back(&mut self, id: BuilderId) {
        self.set(id, State::Resting);
    }

    /// A builder that was given back or adopted can take another build.
    pub(crate) fn rested(&mut self, id: BuilderId, now: Instant) {
        self.set(id, State::Idle { since: now });
    }

    /// A builder is lost: it is to be stopped, in case that something is left of it.
    pub(crate) fn lost(&mut self, id: BuilderId) {
        self.set(id, State::Lost);
    }

    /// Nothing is left of a builder.
    pub(crate) fn stopped(&mut self, id: BuilderId) {
        self.builders.remove(&id);
    }

    /// What is to be done now. Everything that is returned counts as begun.
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

    /// Grants what is there, starts what is missing, refuses what cannot be had.
    fn serve(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut coming: HashSet<BuilderId> =
            self.builders.iter().filter(|(_, entry)| entry.is_coming()).map(|(&id, _)| id).collect();
        for (request, wish) in self.fair_order() {
            if self.is_held_back(&wish) {
                self.wait_for_start_again(request);
                continue;
            }
            let need = self.rules.clamp(wish.memory);
            if let Some(id) = self.smallest(need, Entry::is_usable) {
                self.set(id, State::Taken { client: wish.client.key(), memory: wish.counted_memory() });
                self.leave(request);
                actions.push(Action::Grant { request, id });
                continue;
            }
            // A builder that is to come for this one, which others behind it cannot count on.
            let expected = coming.iter().copied().filter(|id| self.builders[id].memory >= need).min();
            if let Some(id) = expected {
                coming.remove(&id);
                self.wait_for_start(request, now);
            } else if let Some(error) = self.broken(now) {
                self.leave(request);
                actions.push(Action::Refuse { request, refusal: Refusal::NoStart(error, self.retry_after(now)) });
                continue;
            } else if let Some(id) = self.smallest(0, Entry::is_idle).filter(|_| self.has_no_place()) {
                // Too small for this one: it makes room.
                self.set(id, State::Stopping);
                actions.push(Action::Stop { id });
            } else if self.builders.len() < self.rules.max_builders {
                if self.others_have_all() || (self.failures > 0 && self.is_any_busy()) {
                    self.wait_for_start_again(request);
                } else {
                    self.wait_for_start(request, now);
                }
                if self.may_start(now) {
                    actions.push(self.start(need));
                }
            } else {
                // All are busy; that is no fault, however long it takes.
                self.wait_for_start_again(request);
            }
            if self.waited_for_start(request, now) >= self.rules.start_timeout {
                self.leave(request);
                let refusal = Refusal::Late(self.rules.start_timeout, self.last_failure.clone());
                actions.push(Action::Refuse { request, refusal });
            }
        }
    }

    /// Idle builders that are of no use here go: all of them at the router's end, else those for which another router waits, and
    /// those of an earlier template.
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
        loop {
            let ready = self.others.ready + self.count(|entry| entry.is_idle() || entry.is_coming());
            let spare = ready.saturating_sub(self.queue.len()) < self.rules.spare_builders;
            let all = self.others.all + self.builders.len();
            let wanted = !self.draining && (all < self.rules.min_builders || spare);
            if !wanted || all >= self.rules.max_builders || !self.may_start(now) {
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

    /// The builder that has been idle longest and is not to be kept, and when it goes.
    ///
    /// What is kept is kept by all routers together. Each counts only the builders of the routers before it, so that two that look
    /// at the same time do not each rely on the other's.
    fn next_to_retire(&self) -> Option<(BuilderId, Instant)> {
        let enough = self.others.all_before + self.count(|entry| !entry.is_going()) > self.rules.min_builders
            && self.others.idle_before + self.count(Entry::is_idle) > self.rules.spare_builders;
        self.longest_idle().filter(|_| enough).map(|(id, since)| (id, since + self.rules.idle_ttl))
    }

    /// When [`act`](Self::act) has something to do although nothing happened.
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

    /// After a failure one start at a time, and not before the pause is over.
    fn may_start(&self, now: Instant) -> bool {
        let pause = self.not_before.is_some_and(|until| now < until);
        let trouble = self.failures > 0 || self.others_have_all();
        !pause && (!trouble || self.count(Entry::is_coming) == 0)
    }

    /// Whether there is a builder in every place, of this router or another.
    fn has_no_place(&self) -> bool {
        self.others.all + self.builders.len() >= self.rules.max_builders || self.others_have_all()
    }

    /// Whether, at the last attempt, other routers had all the builders that there may be.
    fn others_have_all(&self) -> bool {
        self.last_failure.as_ref().is_some_and(|error| error.outlook == Outlook::Full)
    }

    /// Why no start is tried now, when it would be in vain, and nothing else is to be had either.
    fn broken(&self, now: Instant) -> Option<SpawnError> {
        let error = self.last_failure.as_ref().filter(|_| !self.is_any_busy())?;
        let in_vain = error.outlook == Outlook::Lasting || self.failures >= self.rules.breaker;
        (in_vain && self.not_before.is_some_and(|until| now < until)).then(|| error.clone())
    }

    fn retry_after(&self, now: Instant) -> Duration {
        self.not_before.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}
