//! The engine `insertion`: takes all rows, then inserts their elements.

use rayon::prelude::*;

use super::Insertion;
use crate::candidates::Candidates;
use crate::draft::Draft;
use crate::engines::bulk::draw_levels;
use crate::engines::finish::Completion;
use crate::engines::intake::{Intake, Setup};
use crate::input::TakenRows;
use crate::random::Random;
use crate::select::Gathered;
use crate::tasks::ranges;
use crate::{BuildError, Engine, Finished, Phase, RowBatch};

/// The random stream of the order of insertion; the layers use lower numbers.
const SHUFFLE: u64 = 1 << 33;

pub(crate) struct InsertionEngine(Intake);

impl InsertionEngine {
    pub(crate) fn start(setup: Setup) -> Self {
        Self(Intake::new(setup))
    }
}

impl Engine for InsertionEngine {
    fn add_all(&mut self, batches: &[RowBatch<'_>]) -> Result<(), BuildError> {
        self.0.add(batches, |_, _| Ok(()))
    }

    fn finish(self: Box<Self>) -> Result<Finished, BuildError> {
        let (setup, taken, _) = self.0.finish()?;
        let (draft, gathered) = draft_by_insertion(&setup, &taken)?;
        Completion { setup: &setup, space: setup.searched(), trial: false }.run(draft, gathered, taken)
    }
}

/// Enters [`Phase::Graph`], and inserts all elements but duplicates ([`insert_all`]).
pub(crate) fn draft_by_insertion(setup: &Setup, taken: &TakenRows) -> Result<(Draft, Gathered), BuildError> {
    let points = taken.points();
    setup.control.progress().enter(Phase::Graph, points.len() as u64);
    insert_all(setup, taken, points)
}

/// Inserts `points`. The draft then has all lists; if lists of layer 0 are not full, the candidates complete them.
pub(crate) fn insert_all(setup: &Setup, taken: &TakenRows, points: Vec<u32>) -> Result<(Draft, Gathered), BuildError> {
    let Setup { spec, control, .. } = setup;
    setup.pool.run(|| {
        let levels = draw_levels(&Random::new(spec.seed), &points, taken.heap_tids.elements(), spec.m);
        let mut draft = Draft::new(spec.m, levels);
        // Elements of a batch do not see each other: a group of similar rows that follow one another must not be in one batch.
        let mut places: Vec<u32> = (0..points.len() as u32).collect();
        Random::new(spec.seed).fork(SHUFFLE).shuffle(&mut places);
        let shuffled: Vec<u32> = places.iter().map(|&place| points[place as usize]).collect();
        let levels = shuffled.iter().map(|&point| draft.level(point)).collect();
        let (m, ef_construction) = (usize::from(spec.m), usize::from(spec.ef_construction));
        let graph = Insertion::build(setup.searched(), &shuffled, levels, m, ef_construction, control)?;
        for (at, &point) in (0..).zip(&shuffled) {
            for layer in 1..=draft.level(point) {
                draft.set(point, layer, graph.list(at, layer).map(|near| near.element()));
            }
        }
        let mut numbers = vec![u32::MAX; draft.len()];
        (0..).zip(&shuffled).for_each(|(at, &point)| numbers[point as usize] = at);
        let list = |element: usize| match numbers[element] {
            u32::MAX => None,
            at => Some(graph.by_rule(at).into_iter()),
        };
        draft.set_layer0(list, control)?;
        // If any list is not full, all are completed from candidates.
        let near = Candidates::new(points.len(), 2 * m);
        let wanted = (2 * m).min(points.len().saturating_sub(1));
        let is_short = |&point: &u32| draft.neighbors(point, 0).len() < wanted;
        if points.par_iter().any(is_short) {
            control.section("candidates").for_each(ranges(points.len()), |range| {
                range.for_each(|at| near.add(places[at] as usize, graph.list(at as u32, 0)));
                Ok(())
            })?;
        }
        drop(graph);
        Ok((draft, Gathered::by_insertion(points, near, 0)))
    })
}
