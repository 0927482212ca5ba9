use std::sync::Arc;

use distance::Metric;
use graph::max_level;

use super::carve::Carver;
use super::plan::{Compared, Plan};
use super::random::Random;
use crate::candidates::Candidates;
use crate::codes::Codes;
use crate::complete::{self, Gathered};
use crate::draft::Draft;
use crate::finish::Job;
use crate::rows::{Rows, TakenRows};
use crate::space::{self, Measure, Space};
use crate::values::ValueStore;
use crate::{BuildError, BuildSpec, Control, Engine, Finished, Phase, Pool, RowBatch};

pub(crate) struct BulkEngine {
    spec: BuildSpec,
    measure: Measure,
    pool: Arc<Pool>,
    control: Control,
    store: Arc<ValueStore>,
    rows: Rows,
}

impl BulkEngine {
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

impl Engine for BulkEngine {
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
        drop(rows);
        let mut space = Space { measure, store: &store, lifts: &[], codes: None };
        let lifts = match spec.metric {
            Metric::InnerProduct => pool.run(|| space::lifts(space, taken.heap_tids.elements() as u32, &control))?,
            _ => Vec::new(),
        };
        space.lifts = &lifts;
        let coded = space.measure.products.and_then(|products| Some((products, products.codes?)));
        let elements = taken.heap_tids.elements();
        let encode = |(products, kernels)| pool.run(|| Codes::new(space, products, kernels, elements, &control));
        let codes = coded.map(encode).transpose()?;
        space.codes = codes.as_ref();
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
    /// Draws levels, fills the upper layers, and finds candidates for layer 0.
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
        let top = draft.entry().map_or(0, |entry| draft.level(entry));
        for layer in 1..=top {
            let points = draft.on_layer(layer).collect();
            let gathered = self.gather(points, m, false, &random.fork(2 + u64::from(layer)))?;
            complete::fill(&mut draft, layer, gathered, self.space, self.pool, self.control)?;
        }
        let gathered = self.gather(points, 2 * m, true, &random.fork(2))?;
        Ok((draft, gathered))
    }

    /// Finds candidates for the lists, of so many slots, of some points.
    fn gather(&self, points: Vec<u32>, list: usize, counted: bool, random: &Random) -> Result<Gathered, BuildError> {
        let compared = match (self.space.codes, self.space.measure.products) {
            (Some(codes), _) if codes.of_directions() => Compared::ByDirections,
            (Some(_), _) => Compared::ByCodes,
            (None, Some(_)) => Compared::ByProducts,
            (None, None) => Compared::Singly,
        };
        let plan = Plan::new(self.spec.ef_construction, list, compared, points.len());
        let Self { space, control, pool, .. } = *self;
        let find = |space, keep, counted| {
            let found = Candidates::new(points.len(), keep);
            let carver = Carver { space, points: &points, plan: &plan, found: &found, control, counted };
            pool.run(|| carver.run(random)).map(|(order, far)| (found, order, far))
        };
        // Under inner product, as many candidates as otherwise, by two metrics.
        let (keep, also) = match space.euclidean() {
            Some(euclidean) => (plan.keep - plan.keep / 4, Some(find(euclidean, plan.keep / 4, false)?.0)),
            None => (plan.keep, None),
        };
        let (near, order, far) = find(space, keep, counted)?;
        Ok(Gathered { points, order, near, also, far, at_least: 0, mutual: true })
    }
}

/// A level as pgvector draws it.
fn level(random: &mut Random, m: u16) -> u8 {
    let level = -random.unit().ln() / f64::from(m).ln();
    (level as u64).min(max_level(m).into()) as u8
}
