use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hnsw::Control;
use protocol::{Phase, Progress};
use service::Stage;

/// The progress of a build: first that of the engine, then that of the pages. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    control: Control,
    pages: Arc<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    sent: AtomicU32,
    /// The number of pages; 0 before they begin, since every index has a meta page.
    total: AtomicU32,
    /// The time spent in each of the engine's phases, and when the pages began.
    before: OnceLock<([Duration; 4], Instant)>,
}

impl Watch {
    pub(crate) fn new(control: Control) -> Self {
        Self { control, pages: Arc::default() }
    }

    /// Enters the phase of the pages.
    pub(crate) fn enter_pages(&self, total: u32) {
        self.pages.before.get_or_init(|| (self.control.progress().spent(), Instant::now()));
        self.pages.total.store(total, Ordering::Relaxed);
    }

    /// Counts pages sent to the client.
    pub(crate) fn add_pages(&self, count: u32) {
        self.pages.sent.fetch_add(count, Ordering::Relaxed);
    }

    /// The progress message for the client.
    pub(crate) fn message(&self) -> Progress {
        let Stage { phase, done, total, .. } = self.stage();
        Progress { phase: phase as u8, done, total }
    }

    /// The progress for the status page, with the time spent in each phase.
    pub(crate) fn stage(&self) -> Stage {
        let total = self.pages.total.load(Ordering::Relaxed);
        let ([rows, graph, repair, order], pages) = match self.pages.before.get() {
            Some((engine, since)) => (*engine, since.elapsed()),
            None => (self.control.progress().spent(), Duration::ZERO),
        };
        let spent = [rows, graph, repair, order, pages];
        if total > 0 {
            let done = u64::from(self.pages.sent.load(Ordering::Relaxed));
            return Stage { phase: Phase::Pages, done, total: total.into(), spent };
        }
        let (phase, done, total) = self.control.progress().get();
        let phase = match phase {
            hnsw::Phase::Rows => Phase::Rows,
            hnsw::Phase::Graph => Phase::Graph,
            hnsw::Phase::Repair => Phase::Repair,
            hnsw::Phase::Order => Phase::Order,
        };
        Stage { phase, done, total, spent }
    }
}

#[cfg(test)]
mod tests {
    use hnsw::{Control, Phase};
    use protocol::Progress;

    use super::Watch;

    #[test]
    fn phases_have_their_numbers_on_the_wire() {
        let control = Control::default();
        let watch = Watch::new(control.clone());
        for (phase, number) in [(Phase::Rows, 1), (Phase::Graph, 2), (Phase::Repair, 3), (Phase::Order, 4)] {
            control.progress().enter(phase, 10);
            control.progress().add(3);
            assert_eq!(watch.message(), Progress { phase: number, done: 3, total: 10 });
        }
        watch.enter_pages(7);
        watch.add_pages(2);
        assert_eq!(watch.message(), Progress { phase: 5, done: 2, total: 7 });
    }
}
