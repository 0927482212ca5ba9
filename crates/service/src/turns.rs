//! Which client's build comes next? The rules that the queues of builder and router share.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{ErrorReport, Refuse, SqlState};

use crate::Size;
use crate::client::{LIMITS_HINT, Limits};

/// A client's running builds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Their number.
    pub builds: u32,
    /// Their memory in bytes.
    pub memory: u64,
}

impl Limits {
    /// Whether a build with `memory` bytes would exceed the limits beside the client's running builds.
    #[must_use]
    pub fn hold_back(&self, running: Share, memory: u64) -> bool {
        (self.builds > 0 && running.builds >= self.builds)
            || (self.memory > 0 && running.memory.saturating_add(memory) > self.memory)
    }

    /// Whether another build may wait besides `waiting` ones.
    #[must_use]
    pub fn let_wait(&self, waiting: usize) -> bool {
        self.waiting == 0 || waiting < self.waiting as usize
    }
}

/// The refusal of a build that may not wait, since `most` builds of its client already do.
#[must_use]
pub fn refuse_waiting(most: u32) -> Box<Refuse> {
    let message = format!("this client has reached its limit of {most} waiting builds");
    ErrorReport::new(SqlState::TOO_MANY_CONNECTIONS, message).hint(LIMITS_HINT).refuse(30_000)
}

/// The refusal of a build, a check or advice (`what`) that needs more memory than its client may take for all its builds.
#[must_use]
pub fn refuse_memory(what: &str, needed: u64, limit: u64) -> Box<Refuse> {
    let (needed, limit) = (Size(needed), Size(limit));
    let message = format!("{what} needs more memory than this client may have");
    ErrorReport::new(SqlState::OUT_OF_MEMORY, message)
        .detail(format!("About {needed} are needed; the client may take at most {limit}."))
        .hint(LIMITS_HINT)
        .refuse(0)
}

/// What a waiting build asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asks {
    /// The key of its client.
    pub client: Arc<str>,
    /// The client's limits.
    pub limits: Limits,
    /// Its memory in bytes.
    pub memory: u64,
}

/// A waiting build in the order in which builds begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn<'a, B> {
    /// The build.
    pub build: &'a B,
    /// Whether its client's limits make it wait.
    pub held_back: bool,
}

/// Orders a `queue`, given in order of arrival, by how many builds of the same client run or wait ahead of each build: fewest first, then by
/// arrival. `running` returns a client's running builds.
///
/// A waiting build counts as running for its client's later builds. If it is held back, they are too: otherwise small builds could keep a
/// client's large one waiting forever.
pub fn fair_order<B>(queue: &[B], asks: impl Fn(&B) -> Asks, running: impl Fn(&str) -> Share) -> Vec<Turn<'_, B>> {
    let mut clients: HashMap<Arc<str>, (Share, bool)> = HashMap::new();
    let turned = queue.iter().map(|build| {
        let Asks { client, limits, memory } = asks(build);
        let (share, held_back) = clients.entry(client.clone()).or_insert_with(|| (running(&client), false));
        *held_back |= limits.hold_back(*share, memory);
        *share = Share { builds: share.builds + 1, memory: share.memory.saturating_add(memory) };
        (share.builds, Turn { build, held_back: *held_back })
    });
    let mut order: Vec<(u32, Turn<'_, B>)> = turned.collect();
    order.sort_by_key(|(number, _)| *number);
    order.into_iter().map(|(_, turn)| turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_within_their_limits() {
        let limits = Limits { builds: 3, memory: 100, ..Limits::default() };
        // A client and the memory of its build.
        let queue = [("a", 60), ("a", 50), ("a", 10), ("b", 200), ("c", 40), ("c", 40)];
        let asks = |&(client, memory): &(&str, u64)| Asks {
            client: client.into(),
            limits: if client == "b" { Limits::default() } else { limits },
            memory,
        };
        let running = |client: &str| Share { builds: u32::from(client == "c") * 2, memory: 0 };
        let order = fair_order(&queue, asks, running);
        let order: Vec<_> = order.into_iter().map(|turn| (*turn.build, turn.held_back)).collect();
        let expected = [
            (("a", 60), false),
            (("b", 200), false),
            // Exceeds the memory limit, counting the first.
            (("a", 50), true),
            // Would fit, but waits behind the one before.
            (("a", 10), true),
            (("c", 40), false),
            // A fourth build.
            (("c", 40), true),
        ];
        assert_eq!(order, expected);
    }
}
