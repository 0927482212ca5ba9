use rayon::prelude::*;

use super::Insertion;
use crate::candidates::Candidates;
use crate::draft::Draft;
use crate::engines::bulk::draw_levels;
use crate::engines::finish::Completion;
use crate::engines::intake::{Intake, Setup};
use crate::input::TakenRows;
use crate::random::Random;
use crate::select::{Far, Gathered};
use crate::space::Space;
use crate::{BuildError, BuildSpec, Control, Engine, Finished, Phase, RowBatch};

/// Takes all rows, then inserts their elements.
pub(crate) struct InsertionEngine(Intake);

impl InsertionEngine {
    pub(crate) fn start(setup: Setup) -> Self {
        Self(Intake::new(setup))
    }
}

impl Engine for InsertionEngine {
    fn add(&mut self, batch: RowBatch<'_>) -> Result<(), BuildError> {
        self.0.add(batch, |_, _| Ok(()))
    }

    fn finish(self: Box<Self>) -> Result<Finished, BuildError> {
        let (setup, taken, _) = self.0.finish();
        let space = setup.searched();
        setup.control.progress().enter(Phase::Graph, taken.points().len() as u64);
        let (draft, gathered) = setup.pool.run(|| insert_all(&setup.spec, space, &taken, &setup.control))?;
        Completion { setup: &setup, space, trial: false }.run(draft, gathered, taken)
    }
}

/// Inserts all elements but duplicates, on the threads of the pool it is called from. The draft then has all lists; if lists of layer 0 are
/// not full, the candidates complete them.
pub(crate) fn insert_all(
    spec: &BuildSpec,
    space: Space<'_>,
    taken: &TakenRows,
    control: &Control,
) -> Result<(Draft, Gathered), BuildError> {
    let points = taken.points();
    let levels = draw_levels(&Random::new(spec.seed), &points, taken.heap_tids.elements(), spec.m);
    let mut draft = Draft::new(spec.m, levels);
    let levels = points.iter().map(|&point| draft.level(point)).collect();
    let (m, ef_construction) = (usize::from(spec.m), usize::from(spec.ef_construction));
    let graph = Insertion::build(space, &points, levels, m, ef_construction, control)?;
    for (at, &point) in (0..).zip(&points) {
        for layer in 1..=draft.level(point) {
            draft.set(point, layer, graph.list(at, layer).map(|near| near.element()));
        }
    }
    let lists: Vec<Vec<u32>> = (0..points.len() as u32).into_par_iter().map(|at| graph.by_rule(at)).collect();
    for (&point, list) in points.iter().zip(lists) {
        draft.set(point, 0, list);
    }
    // If any list is not full, all are completed from candidates.
    let near = Candidates::new(points.len(), 2 * m);
    let wanted = (2 * m).min(points.len().saturating_sub(1));
    let is_short = |&point: &u32| draft.neighbors(point, 0).len() < wanted;
    if points.par_iter().any(is_short) {
        (0..points.len()).into_par_iter().for_each(|at| near.add(at, graph.list(at as u32, 0)));
    }
    let order = (0..points.len() as u32).collect();
    drop(graph);
    let gathered =
        Gathered { points, order, near, also: None, far: Far::none(), at_least: 0, mutual: false, left_out: None };
    Ok((draft, gathered))
}
