use std::sync::Arc;

use rayon::prelude::*;

use super::Insertion;
use crate::bulk::{Random, draw_levels};
use crate::candidates::Candidates;
use crate::complete::{Far, Gathered};
use crate::draft::Draft;
use crate::finish::Job;
use crate::rows::{Rows, TakenRows};
use crate::space::{Measure, Space};
use crate::values::ValueStore;
use crate::{BuildError, BuildSpec, Control, Engine, Finished, Phase, Pool, RowBatch};

/// Takes all rows, then inserts their elements.
pub(crate) struct InsertionEngine {
    spec: BuildSpec,
    measure: Measure,
    pool: Arc<Pool>,
    control: Control,
    store: Arc<ValueStore>,
    rows: Rows,
}

impl InsertionEngine {
    pub(crate) fn start(
        spec: BuildSpec,
        measure: Measure,
        pool: Arc<Pool>,
        control: Control,
        store: Arc<ValueStore>,
    ) -> Self {
        let rows = Rows::new(&spec, store.clone());
        control.progress().enter(Phase::Rows, spec.expected_rows);
        Self { spec, measure, pool, control, store, rows }
    }
}

impl Engine for InsertionEngine {
    fn add(&mut self, batch: RowBatch<'_>) -> Result<(), BuildError> {
        self.control.check()?;
        self.rows.take(&self.spec, batch, |_, _| Ok(()))?;
        self.control.progress().add(batch.tids.len() as u64);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Finished, BuildError> {
        let Self { spec, measure, pool, control, store, mut rows } = *self;
        let row_count = rows.len();
        let (taken, _) = rows.finish();
        let space = Space { measure, store: &store, lifts: &[], codes: None };
        let (draft, gathered) = pool.run(|| insert_all(&spec, space, &taken, &control))?;
        Job {
            space,
            searched: measure,
            store: store.clone(),
            spec: &spec,
            pool: &pool,
            control: &control,
            trial: false,
        }
        .complete(draft, gathered, taken, row_count)
    }
}

/// Inserts all elements but copies. The draft has all lists then; the candidates are for lists of layer 0 that are not full, if there are any.
/// Runs on the threads of the pool it is called from.
pub(crate) fn insert_all(
    spec: &BuildSpec,
    space: Space<'_>,
    taken: &TakenRows,
    control: &Control,
) -> Result<(Draft, Gathered), BuildError> {
    let points = taken.points();
    let levels = draw_levels(&Random::new(spec.seed), &points, taken.heap_tids.elements(), spec.m);
    control.progress().enter(Phase::Graph, points.len() as u64);
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
    let gathered = Gathered { points, order, near, also: None, far: Far::none(), at_least: 0, mutual: false };
    Ok((draft, gathered))
}
