use super::insertion::insert_all;
use super::intake::Setup;
use super::trial;
use crate::draft::Draft;
use crate::input::TakenRows;
use crate::repair::guard::{self, Guard, Look, Sample};
use crate::repair::{duplicates, navigate, reach};
use crate::select::{self, Gathered};
use crate::space::Space;
use crate::{BuildError, Finished, Pass, Phase, Remedy, Report, order};

/// How much more a graph by insertion must find to be taken: it finds less with greater ef_search, as a rule.
const CLEARLY: f32 = 0.015;

/// Elements from which on insertion is tried on a graph that still loses its way. Where there are fewer, the memory that a build has reserved
/// has no room for a sample, and the sample costs as much as it may gain.
const MANY: usize = 40_000;

/// The way from the lists that an engine found to a finished graph, the same for every engine.
#[derive(Clone, Copy)]
pub(crate) struct Completion<'a> {
    pub(crate) setup: &'a Setup,
    /// By which the graph is completed.
    pub(crate) space: Space<'a>,
    /// Whether a graph that falls short may be built again by insertion.
    pub(crate) trial: bool,
}

/// The measured graph, before duplicates are linked.
struct Measured {
    draft: Draft,
    look: Look,
    remedy: Remedy,
}

impl Completion<'_> {
    /// Fills the lists, measures the graph and mends it if it falls short, links duplicates and stranded elements, and puts the elements in the
    /// order of the pages.
    pub(crate) fn run(self, draft: Draft, gathered: Gathered, taken: TakenRows) -> Result<Finished, BuildError> {
        let Setup { control, pool, store, .. } = self.setup;
        let (rows, elements) = (taken.heap_tids.rows() as u64, draft.len() as u64);
        let rounds = if gathered.mutual { 2 } else { 1 };
        control.progress().enter(Phase::Repair, rounds * gathered.points.len() as u64);
        let Measured { mut draft, look, remedy } = self.measured(draft, gathered, &taken)?;
        duplicates::link(&mut draft, &taken, control)?;
        let relinked = if self.setup.runs(Pass::Reach) { reach::repair(&mut draft, self.space, control)? } else { 0 };
        let graph = draft.finish(taken.heap_tids)?;
        control.progress().enter(Phase::Order, elements);
        let order = || match self.setup.runs(Pass::PageOrder) {
            true => order::by_page(&graph, order::elements_per_page(&graph, &**store), control),
            false => Ok(graph.elements().collect()),
        };
        let look_at = || (guard::self_recall(&graph, self.setup.searched()), reach::count_unreachable(&graph));
        let (order, (self_recall, unreachable)) = pool.run(|| rayon::join(order, look_at));
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
        Ok(Finished { graph, values: store.clone(), order, report })
    }

    /// Fills the lists of layer 0 and measures the graph. Where searches lose their way, elements are searched for and linked again; where that
    /// is not enough and insertion does better in a sample, insertion builds the graph, and the better one of the two is taken.
    fn measured(self, mut draft: Draft, gathered: Gathered, taken: &TakenRows) -> Result<Measured, BuildError> {
        let Setup { spec, pool, control, .. } = self.setup;
        let (points, order, mendable) = (gathered.points.clone(), gathered.order.clone(), gathered.mutual);
        select::fill(&mut draft, 0, gathered, self.space, pool, control)?;
        let searched = self.setup.searched();
        let guard = |sample| pool.run(|| Guard::new(searched, spec, &points, &draft, sample, control));
        let mut sample = guard(Sample::Small)?;
        let mut look = pool.run(|| sample.look(&draft, control))?;
        if mendable && look.may_lose() {
            sample = guard(Sample::Large)?;
            look = pool.run(|| sample.look(&draft, control))?;
        }
        let mut measured = Measured { look, draft, remedy: Remedy::None };
        if !mendable || !measured.look.loses() || !self.setup.runs(Pass::Remedies) {
            return Ok(measured);
        }
        let look_at = |draft: &Draft| pool.run(|| sample.look(draft, control));
        let mut mended = measured.draft.clone();
        navigate::improve(&mut mended, (&points, &order), spec.ef_construction, self.space, pool, control)?;
        let look = look_at(&mended)?;
        if look.finds_more_than(&measured.look, 0.0) {
            measured = Measured { look, draft: mended, remedy: Remedy::Navigation };
        }
        let inserts = measured.look.loses()
            && self.trial
            && points.len() >= MANY
            && trial::run(self.setup, &points)?.is_some_and(|tried| tried.insertion_finds_more(2.0 * CLEARLY));
        if inserts {
            let (mut draft, gathered) = pool.run(|| insert_all(spec, searched, taken, control))?;
            select::fill(&mut draft, 0, gathered, searched, pool, control)?;
            let look = look_at(&draft)?;
            if look.finds_more_than(&measured.look, CLEARLY) {
                return Ok(Measured { draft, look, remedy: Remedy::Insertion });
            }
        }
        Ok(measured)
    }
}
