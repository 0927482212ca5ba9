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

/// The refusal of a build that needs more memory than its client may take for all its builds.
#[must_use]
pub fn refuse_memory(needed: u64, limit: u64) -> Box<Refuse> {
    let (needed, limit) = (Size(needed), Size(limit));
    ErrorReport::new(SqlState::OUT_OF_MEMORY, "build needs more memory than this client may have")
        .detail(format!("About {needed} are needed; the client may take at most {limit}."))
        .hint(LIMITS_HINT)
        .refuse(0)
}

/// Orders a queue, whose order is that of arrival, by the number of the client's running and earlier waiting builds, fewest first. Builds
/// with equal numbers keep their order. `client` is the key of a build's client, `running` the number of a client's running builds.
pub fn fair_order<B>(queue: &[B], client: impl Fn(&B) -> Arc<str>, running: impl Fn(&str) -> u32) -> Vec<&B> {
    let mut turns: HashMap<Arc<str>, u32> = HashMap::new();
    let turned = queue.iter().map(|build| {
        let client = client(build);
        let turn = turns.entry(client.clone()).or_insert_with(|| running(&client));
        *turn += 1;
        (*turn, build)
    });
    let mut order: Vec<(u32, &B)> = turned.collect();
    order.sort_by_key(|(turn, _)| *turn);
    order.into_iter().map(|(_, build)| build).collect()
}
