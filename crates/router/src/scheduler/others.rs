use super::{BuilderId, Scheduler};

/// Numbers of other routers' builders, which count towards the minimum, the maximum and the spares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// All builders.
    pub(crate) all: usize,
    /// Idle or starting builders.
    pub(crate) ready: usize,
    /// All builders of routers that come before this one in an order that all routers share.
    pub(crate) all_before: usize,
    /// Idle builders of those routers.
    pub(crate) idle_before: usize,
}

impl Scheduler {
    /// Updates the numbers of other routers' builders.
    pub(crate) fn others(&mut self, others: Others) {
        if others.all < self.others.all {
            self.expect_room();
        }
        self.others = others;
    }

    /// Updates which builders other routers wait for.
    pub(crate) fn wanted(&mut self, wanted: &[BuilderId]) {
        for (id, entry) in &mut self.builders {
            entry.wanted = wanted.contains(id);
        }
    }

    /// Begins the shutdown: no spare builders are started, and idle ones are stopped or handed over.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }
}
