use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Book;
use crate::spawner::SpawnError;

/// The number of a request.
pub(crate) type RequestId = u64;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The database; each gets its share.
    pub(crate) peer: IpAddr,
    /// Memory in bytes that the build will take.
    pub(crate) memory: u64,
}

/// Why somebody gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Builders do not start; worth trying again after this time.
    NoStart(SpawnError, Duration),
    /// None has started for so long; what went wrong last.
    Late(Duration, Option<SpawnError>),
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) wish: Wish,
    /// Since when a builder could have been started for it.
    pub(super) starting_since: Option<Instant>,
}

impl Book {
    /// Those who wait, in the order in which they are served.
    pub(crate) fn waiting(&self) -> Vec<RequestId> {
        self.fair_order().into_iter().map(|(id, _)| id).collect()
    }

    /// Whether those who wait do so since all builders are busy.
    pub(crate) fn is_full(&self) -> bool {
        self.builders.len() >= self.rules.max_builders && self.count(|entry| entry.is_coming()) == 0
    }

    /// What went wrong when a builder was started last.
    pub(crate) fn last_failure(&self) -> Option<&SpawnError> {
        self.last_failure.as_ref()
    }

    /// A database's next build comes the later, the more it has under way: whoever has least is first, then whoever waits
    /// longest.
    pub(super) fn fair_order(&self) -> Vec<(RequestId, Wish)> {
        let mut builds: HashMap<IpAddr, usize> = HashMap::new();
        let mut order: Vec<_> = self
            .queue
            .iter()
            .map(|waiting| {
                let peer = waiting.wish.peer;
                let turn = builds.entry(peer).or_insert_with(|| self.builds_of(peer));
                *turn += 1;
                (*turn, waiting.id, waiting.wish)
            })
            .collect();
        order.sort_unstable_by_key(|&(turn, id, _)| (turn, id));
        order.into_iter().map(|(_, id, wish)| (id, wish)).collect()
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
