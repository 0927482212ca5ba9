use std::sync::Arc;

use crate::complete::Gathered;
use crate::draft::Draft;
use crate::guard::{self, Guard, Look, Sample};
use crate::rows::TakenRows;
use crate::space::{Measure, Space};
use crate::values::ValueStore;
use crate::{BuildError, BuildSpec, Control, Finished, Phase, Pool, Remedy, Report};
use crate::{complete, copies, insertion, navigate, order, reach, trial};

/// How much more a graph by insertion must find to be taken: it finds less with greater ef_search, as a rule.
const CLEARLY: f32 = 0.015;

/// Elements from which on insertion is tried on a graph that still loses its way. Where there are fewer, the memory that a build has reserved
/// has no room for a sample, and the sample costs as much as it may gain.
const MANY: usize = 40_000;

/// The way from the lists that an engine found to a finished graph, the same for every engine.
pub(crate) struct Job<'a> {
    /// By which the graph is completed.
    pub(crate) space: Space<'a>,
    /// By which it will be searched.
    pub(crate) searched: Measure,
    pub(crate) store: Arc<ValueStore>,
    pub(crate) spec: &'a BuildSpec,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) control: &'a Control,
    /// Whether a graph that falls short may be built again by insertion.
    pub(crate) trial: bool,
}

/// The measured graph, before copies are linked.
struct Measured {
    draft: Draft,
    look: Look,
    remedy: Remedy,
}

impl Job<'_> {
    /// Fills the lists, measures the graph and mends it if it falls short, links copies and stranded elements, and puts the elements in the
    /// order of the pages.
    pub(crate) fn complete(
        self,
        draft: Draft,
        gathered: Gathered,
        taken: TakenRows,
        rows: u64,
    ) -> Result<Finished, BuildError> {
        let elements = draft.len() as u64;
        let rounds = if gathered.mutual { 2 } else { 1 };
        self.control.progress().enter(Phase::Repair, rounds * gathered.points.len() as u64);
        let space = self.space;
        let Measured { mut draft, look, remedy } = self.measured(draft, gathered, &taken)?;
        copies::link(&mut draft, &taken, self.control)?;
        let relinked = reach::repair(&mut draft, space, self.control)?;
        let graph = draft.finish(taken.heap_tids)?;
        self.control.progress().enter(Phase::Order, elements);
        let order = || order::by_page(&graph, order::elements_per_page(&graph, &*self.store), self.control);
        let searched = Space { measure: self.searched, ..space };
        let look_at = || (guard::self_recall(&graph, searched), reach::count_unreachable(&graph));
        let (order, (self_recall, unreachable)) = self.pool.run(|| rayon::join(order, look_at));
        let order = order?;
        let report = Report {
            rows,
            elements,
            relinked,
            unreachable,
            self_recall,
            recall: look.recall,
            lost: look.lost(),
            remedy,
        };
        Ok(Finished { graph, values: self.store, order, report })
    }

    /// Fills the lists of layer 0 and looks at the graph. Where searches lose their way, elements are searched for and linked again; where that
    /// is not enough and insertion does better in a sample, insertion builds the graph, and the better one of the two is taken.
    fn measured(&self, mut draft: Draft, gathered: Gathered, taken: &TakenRows) -> Result<Measured, BuildError> {
        let (points, order, mendable) = (gathered.points.clone(), gathered.order.clone(), gathered.mutual);
        complete::fill(&mut draft, 0, gathered, self.space, self.pool, self.control)?;
        let guard = |probes| {
            let measure = || Guard::new(self.searched, &self.store, self.spec, &points, &draft, probes, self.control);
            self.pool.run(measure)
        };
        let mut sample = guard(Sample::Small)?;
        let mut look = self.pool.run(|| sample.look(&draft, self.control))?;
        if mendable && look.may_lose() {
            sample = guard(Sample::Large)?;
            look = self.pool.run(|| sample.look(&draft, self.control))?;
        }
        let mut measured = Measured { look, draft, remedy: Remedy::None };
        if !mendable || !measured.look.loses() {
            return Ok(measured);
        }
        let look_at = |draft: &Draft| self.pool.run(|| sample.look(draft, self.control));
        let mut mended = measured.draft.clone();
        navigate::improve(&mut mended, (&points, &order), self.space, self.pool, self.control)?;
        let look = look_at(&mended)?;
        if look.finds_more_than(&measured.look, 0.0) {
            measured = Measured { look, draft: mended, remedy: Remedy::Navigation };
        }
        let inserts = measured.look.loses()
            && self.trial
            && points.len() >= MANY
            && trial::insertion_finds_more(
                self.spec,
                self.searched,
                &self.store,
                &points,
                2.0 * CLEARLY,
                self.pool,
                self.control,
            )?;
        if inserts {
            let space = Space { measure: self.searched, lifts: &[], codes: None, ..self.space };
            let (mut draft, gathered) =
                self.pool.run(|| insertion::insert_all(self.spec, space, taken, self.control))?;
            complete::fill(&mut draft, 0, gathered, space, self.pool, self.control)?;
            let look = look_at(&draft)?;
            if look.finds_more_than(&measured.look, CLEARLY) {
                return Ok(Measured { draft, look, remedy: Remedy::Insertion });
            }
        }
        Ok(measured)
    }
}
