use std::sync::Arc;

use crate::complete::Gathered;
use crate::draft::Draft;
use crate::rows::TakenRows;
use crate::space::Space;
use crate::values::ValueStore;
use crate::{BuildError, Control, Finished, Phase, Pool, Report};
use crate::{complete, copies, order, reach, search};

/// The way from the lists that an engine found to a finished graph, the same for every engine.
pub(crate) struct Job<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) store: Arc<ValueStore>,
    pub(crate) pool: &'a Pool,
    pub(crate) control: &'a Control,
}

impl Job<'_> {
    /// Fills the lists, links copies and stranded elements, and puts the elements in the order of the pages.
    pub(crate) fn complete(
        self,
        mut draft: Draft,
        gathered: Gathered,
        taken: TakenRows,
        rows: u64,
    ) -> Result<Finished, BuildError> {
        let elements = draft.len() as u64;
        let rounds = if gathered.mutual { 2 } else { 1 };
        self.control.progress().enter(Phase::Repair, rounds * gathered.points.len() as u64);
        let space = self.space;
        complete::fill(&mut draft, 0, gathered, space, self.pool, self.control)?;
        copies::link(&mut draft, &taken, self.control)?;
        let relinked = reach::repair(&mut draft, space, self.control)?;
        let graph = draft.finish(taken.heap_tids)?;
        self.control.progress().enter(Phase::Order, elements);
        let order = || order::by_page(&graph, order::elements_per_page(&graph, &*self.store), self.control);
        let look = || (search::self_recall(&graph, space), reach::count_unreachable(&graph));
        let (order, (self_recall, unreachable)) = self.pool.run(|| rayon::join(order, look));
        let order = order?;
        let report = Report { rows, elements, relinked, unreachable, self_recall };
        Ok(Finished { graph, values: self.store, order, report })
    }
}
