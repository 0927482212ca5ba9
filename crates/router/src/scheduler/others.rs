use super::{BuilderId, Scheduler};

/// Builders of other routers, which share the least, the most and the spare number of builders with this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// All of them.
    pub(crate) all: usize,
    /// The idle or starting ones.
    pub(crate) ready: usize,
    /// All builders of the routers that come before this one in an order that all routers share.
    pub(crate) all_before: usize,
    /// The idle ones of these.
    pub(crate) idle_before: usize,
}

impl Scheduler {
    /// Sets the numbers of other routers' builders.
    pub(crate) fn others(&mut self, others: Others) {
        self.others = others;
    }

    /// Sets the builders for which other routers wait.
    pub(crate) fn wanted(&mut self, wanted: &[BuilderId]) {
        for (id, entry) in &mut self.builders {
            entry.wanted = wanted.contains(id);
        }
    }

    /// The router ends: no spare builders are started, and idle ones are stopped or handed over.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }
}
