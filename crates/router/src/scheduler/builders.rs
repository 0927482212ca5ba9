use std::sync::Arc;
use std::time::Instant;

use service::Share;

use super::{BuilderId, Demand, Scheduler};

/// The state of a builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Starting,
    Idle {
        since: Instant,
    },
    /// It was granted to a build of this client, which counts as `memory` bytes.
    Taken {
        client: Arc<str>,
        memory: u64,
    },
    /// The session has ended, but the builder may still work on the build.
    Finishing,
    /// It is lost; `act` has not returned the action to stop it yet.
    Lost,
    Stopping,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) memory: u64,
    pub(super) state: State,
    /// Started from an earlier template: it may finish its build, but gets no other.
    pub(super) outdated: bool,
    /// Another router has asked for it.
    pub(super) wanted: bool,
}

impl Entry {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle { .. })
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting)
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.state, State::Lost | State::Stopping)
    }

    /// Whether it may get a build from this router.
    pub(super) fn is_usable(&self) -> bool {
        self.is_idle() && !self.outdated
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state, State::Taken { .. } | State::Finishing)
    }

    fn name(&self) -> &'static str {
        match self.state {
            State::Starting => "starting",
            State::Idle { .. } => "idle",
            State::Taken { .. } => "building",
            State::Finishing => "finishing",
            State::Lost | State::Stopping => "stopping",
        }
    }
}

impl Scheduler {
    /// All builders by number, each with the name of its state.
    pub(crate) fn builders(&self) -> Vec<(BuilderId, &'static str)> {
        let mut all: Vec<_> = self.builders.iter().map(|(&id, entry)| (id, entry.name())).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn set(&mut self, id: BuilderId, state: State) {
        if let Some(entry) = self.builders.get_mut(&id)
            && !entry.is_stopping()
        {
            entry.state = state;
        }
    }

    pub(super) fn count(&self, which: impl Fn(&Entry) -> bool) -> usize {
        self.builders.values().filter(|entry| which(entry)).count()
    }

    /// Whether a draining router will soon stop a builder or hand one over.
    pub(crate) fn is_any_leaving(&self) -> bool {
        self.builders.values().any(|entry| !matches!(entry.state, State::Starting | State::Taken { .. }))
    }

    /// The smallest builder among those that `which` selects with at least `memory` bytes; the oldest of several.
    pub(super) fn smallest(&self, memory: u64, which: impl Fn(&Entry) -> bool) -> Option<BuilderId> {
        let fitting = self.builders.iter().filter(|(_, entry)| entry.memory >= memory && which(entry));
        fitting.min_by_key(|&(&id, entry)| (entry.memory, id)).map(|(&id, _)| id)
    }

    /// The idle builder that a request would get.
    pub(super) fn free_for(&self, demand: &Demand) -> Option<BuilderId> {
        self.smallest(self.rules.clamp(demand.machine), Entry::is_usable)
    }

    pub(super) fn longest_idle(&self) -> Option<(BuilderId, Instant)> {
        let idle = self.builders.iter().filter_map(|(&id, entry)| match entry.state {
            State::Idle { since } => Some((id, since)),
            _ => None,
        });
        idle.min_by_key(|&(id, since)| (since, id))
    }

    /// A client's running builds.
    pub(super) fn share_of(&self, client: &str) -> Share {
        self.share_without(BuilderId::MAX, client)
    }

    /// A client's running builds on other builders than `id`.
    pub(super) fn share_without(&self, id: BuilderId, client: &str) -> Share {
        let mut share = Share::default();
        for entry in self.builders.iter().filter(|(other, _)| **other != id).map(|(_, entry)| entry) {
            if let State::Taken { client: other, memory } = &entry.state
                && **other == *client
            {
                share = Share { builds: share.builds + 1, memory: share.memory.saturating_add(*memory) };
            }
        }
        share
    }
}
