use std::net::IpAddr;
use std::time::Instant;

use super::{Book, BuilderId};

/// What a builder is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It comes up.
    Starting,
    /// It could take a build.
    Idle { since: Instant },
    /// It was granted to a client of this database.
    Taken { peer: IpAddr },
    /// Its build may not have ended yet.
    Resting,
    /// It broke; nobody has been told to stop it yet.
    Lost,
    /// It is being taken away.
    Stopping,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) memory: u64,
    pub(super) state: State,
}

impl Entry {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle { .. })
    }

    pub(super) fn is_coming(&self) -> bool {
        matches!(self.state, State::Starting)
    }

    pub(super) fn is_going(&self) -> bool {
        matches!(self.state, State::Lost | State::Stopping)
    }

    fn is_busy(&self) -> bool {
        matches!(self.state, State::Taken { .. } | State::Resting)
    }

    fn name(&self) -> &'static str {
        match self.state {
            State::Starting => "starting",
            State::Idle { .. } => "idle",
            State::Taken { .. } => "building",
            State::Resting => "finishing",
            State::Lost | State::Stopping => "stopping",
        }
    }
}

impl Book {
    /// The builders by number, with what each is doing.
    pub(crate) fn builders(&self) -> Vec<(BuilderId, &'static str)> {
        let mut all: Vec<_> = self.builders.iter().map(|(&id, entry)| (id, entry.name())).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn set(&mut self, id: BuilderId, state: State) {
        if let Some(entry) = self.builders.get_mut(&id)
            && !entry.is_going()
        {
            entry.state = state;
        }
    }

    pub(super) fn count(&self, which: impl Fn(&Entry) -> bool) -> usize {
        self.builders.values().filter(|entry| which(entry)).count()
    }

    /// Whether a builder will be free again.
    pub(super) fn is_any_busy(&self) -> bool {
        self.builders.values().any(Entry::is_busy)
    }

    /// The smallest of these builders with at least so much memory; the oldest of equals.
    pub(super) fn smallest(&self, memory: u64, which: impl Fn(&Entry) -> bool) -> Option<BuilderId> {
        let fitting = self.builders.iter().filter(|(_, entry)| entry.memory >= memory && which(entry));
        fitting.min_by_key(|&(&id, entry)| (entry.memory, id)).map(|(&id, _)| id)
    }

    pub(super) fn longest_idle(&self) -> Option<(BuilderId, Instant)> {
        let idle = self.builders.iter().filter_map(|(&id, entry)| match entry.state {
            State::Idle { since } => Some((id, since)),
            _ => None,
        });
        idle.min_by_key(|&(id, since)| (since, id))
    }

    /// Builds that a database has under way.
    pub(super) fn builds_of(&self, peer: IpAddr) -> usize {
        self.count(|entry| entry.state == State::Taken { peer })
    }
}
