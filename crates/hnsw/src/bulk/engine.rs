use std::sync::Arc;

use distance::{Kernel, Metric};
use graph::max_level;
use rayon::prelude::*;

use super::carve::Carver;
use super::plan::Plan;
use super::random::Random;
use crate::candidates::Candidates;
use crate::complete::Gathered;
use crate::draft::Draft;
use crate::finish::Job;
use crate::rows::{Rows, TakenRows};
use crate::select::Selector;
use crate::space::{self, Products, Space};
use crate::values::ValueStore;
use crate::{BuildError, BuildSpec, Control, Engine, Finished, Phase, Pool, RowBatch};

pub(crate) struct BulkEngine {
    spec: BuildSpec,
    products: Option<Products>,
    kernel: Kernel,
    pool: Arc<Pool>,
    control: Control,
    store: Arc<ValueStore>,
    rows: Rows,
}

impl BulkEngine {
    pub(crate) fn start(
        spec: BuildSpec,
        products: Option<Products>,
        kernel: Kernel,
        pool: Arc<Pool>,
        control: Control,
    ) -> Self {
        let store = Arc::new(ValueStore::new());
        let rows = Rows::new(&spec, store.clone());
        control.progress().enter(Phase::Rows, spec.expected_rows);
        Self { spec, products, kernel, pool, control, store, rows }
    }
}

impl Engine for BulkEngine {
    fn add(&mut self, batch: RowBatch<'_>) -> Result<(), BuildError> {
        self.control.check()?;
        self.rows.take(&self.spec, batch, |_, _| Ok(()))?;
        self.control.progress().add(batch.tids.len() as u64);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Finished, BuildError> {
        let Self { spec, products, kernel, pool, control, store, mut rows } = *self;
        let row_count = rows.len();
        let (taken, _) = rows.finish();
        drop(rows);
        let mut space = Space { kernel, store: &store, products, lifts: &[] };
        let lifts = match spec.metric {
            Metric::InnerProduct => pool.run(|| space::lifts(space, taken.heap_tids.elements() as u32)),
            _ => Vec::new(),
        };
        space.lifts = &lifts;
        let layers = Layers { spec: &spec, space, pool: &pool, control: &control };
        let (draft, gathered) = layers.build(&taken)?;
        Job { space, store: store.clone(), pool: &pool, control: &control }.complete(draft, gathered, taken, row_count)
    }
}

struct Layers<'a> {
    spec: &'a BuildSpec,
    space: Space<'a>,
    pool: &'a Pool,
    control: &'a Control,
}

impl Layers<'_> {
    /// Draws levels, makes the upper layers, and finds candidates for layer 0.
    fn build(&self, taken: &TakenRows) -> Result<(Draft, Gathered), BuildError> {
        let random = Random::new(self.spec.seed);
        let points = taken.points();
        let mut levels = vec![0; taken.heap_tids.elements()];
        let mut draw = random.fork(1);
        for &point in &points {
            levels[point as usize] = level(&mut draw, self.spec.m);
        }
        let mut draft = Draft::new(self.spec.m, levels);
        let m = draft.m();
        self.control.progress().enter(Phase::Graph, points.len() as u64);
        let (found, order) = self.candidates(&points, 2 * m, true, &random.fork(2))?;
        let top = draft.entry().map_or(0, |entry| draft.level(entry));
        for layer in 1..=top {
            let points: Vec<u32> = draft.on_layer(layer).collect();
            let (found, _) = self.candidates(&points, m, false, &random.fork(2 + u64::from(layer)))?;
            let choose = |selector: &mut Selector, (at, &point): (usize, &u32)| {
                let (mut candidates, mut list) = (Vec::new(), Vec::new());
                found.of(at, &mut candidates);
                selector.choose(self.space, point, &candidates, m, &mut list);
                list
            };
            let lists: Vec<_> =
                self.pool.run(|| points.par_iter().enumerate().map_init(Selector::default, choose).collect());
            for (point, list) in points.into_iter().zip(lists) {
                draft.set(point, layer, list);
            }
        }
        Ok((draft, Gathered { points, order, candidates: found, at_least: 0 }))
    }

    fn candidates(
        &self,
        points: &[u32],
        list: usize,
        counted: bool,
        random: &Random,
    ) -> Result<(Candidates, Vec<u32>), BuildError> {
        let plan = Plan::new(self.spec.ef_construction, list);
        let found = Candidates::new(points.len(), plan.keep);
        let Self { space, control, .. } = *self;
        let carver = Carver { space, points, plan: &plan, found: &found, control, counted };
        let order = self.pool.run(|| carver.run(random))?;
        Ok((found, order))
    }
}

/// A level as pgvector draws it.
fn level(random: &mut Random, m: u16) -> u8 {
    let level = -random.unit().ln() / f64::from(m).ln();
    (level as u64).min(max_level(m).into()) as u8
}
