use std::sync::Arc;

use distance::Metric;
use graph::max_level;

use super::carve::Carver;
use super::hubs;
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
use crate::{insertion, trial};

/// How much more insertion must find in a sample, so that it is no chance.
const NO_CHANCE: f32 = 0.004;

pub(crate) struct BulkEngine {
    spec: BuildSpec,
    measure: Measure,
    pool: Arc<Pool>,
    control: Control,
    store: Arc<ValueStore>,
    rows: Rows,
    /// Whether insertion may take over where it finds more.
    trial: bool,
    #[cfg(test)]
    pub(crate) defect: super::plan::Defect,
}

impl BulkEngine {
    /// The engine for a sample, which has no further one.
    pub(crate) fn without_trial(self) -> Self {
        Self { trial: false, ..self }
    }

    pub(crate) fn start(
        spec: BuildSpec,
        measure: Measure,
        pool: Arc<Pool>,
        control: Control,
        store: Arc<ValueStore>,
    ) -> Self {
        let rows = Rows::new(&spec, store.clone());
        control.progress().enter(Phase::Rows, spec.expected_rows);
        Self {
            spec,
            measure,
            pool,
            control,
            store,
            rows,
            trial: true,
            #[cfg(test)]
            defect: super::plan::Defect::None,
        }
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
        let Self {
            spec,
            measure,
            pool,
            control,
            store,
            mut rows,
            trial,
            #[cfg(test)]
            defect,
        } = *self;
        let row_count = rows.len();
        let (taken, _) = rows.finish();
        drop(rows);
        let searched = measure;
        let mut space = Space { measure: measure.for_building(spec.dims), store: &store, lifts: &[], codes: None };
        let lifts = match spec.metric {
            Metric::InnerProduct => pool.run(|| space::lifts(space, taken.heap_tids.elements() as u32, &control))?,
            _ => None,
        };
        match &lifts {
            Some(lifts) => space.lifts = lifts,
            None if spec.metric == Metric::InnerProduct => space.measure = space.measure.euclidean().unwrap_or(measure),
            None => {}
        }
        let job =
            |space| Job { space, searched, store: store.clone(), spec: &spec, pool: &pool, control: &control, trial };
        // Without a Euclidean distance between values, or one that is hardly that of the metric, the data decides who builds.
        let certain = space.measure.products.is_some() && lifts.is_none();
        if trial
            && !certain
            && trial::insertion_finds_more(&spec, searched, &store, &taken.points(), NO_CHANCE, &pool, &control)?
        {
            let space = Space { measure: searched, store: &store, lifts: &[], codes: None };
            let (draft, gathered) = pool.run(|| insertion::insert_all(&spec, space, &taken, &control))?;
            return job(space).complete(draft, gathered, taken, row_count);
        }
        let coded = space.measure.products.and_then(|products| Some((products, products.codes?)));
        let elements = taken.heap_tids.elements();
        let encode = |(products, kernels)| pool.run(|| Codes::new(space, products, kernels, elements, &control));
        let codes = coded.map(encode).transpose()?;
        #[cfg(test)]
        let codes = codes.map(|mut codes| {
            if defect == super::plan::Defect::CodesHalved {
                codes.halve();
            }
            codes
        });
        space.codes = codes.as_ref().filter(|codes| codes.hold(space));
        let layers = Layers {
            spec: &spec,
            space,
            pool: &pool,
            control: &control,
            #[cfg(test)]
            defect,
        };
        let (draft, gathered) = layers.build(&taken)?;
        job(space).complete(draft, gathered, taken, row_count)
    }
}

struct Layers<'a> {
    spec: &'a BuildSpec,
    space: Space<'a>,
    pool: &'a Pool,
    control: &'a Control,
    #[cfg(test)]
    defect: super::plan::Defect,
}

impl Layers<'_> {
    /// Draws levels, fills the upper layers, and finds candidates for layer 0.
    fn build(&self, taken: &TakenRows) -> Result<(Draft, Gathered), BuildError> {
        let random = Random::new(self.spec.seed);
        let points = taken.points();
        let levels = draw_levels(&random, &points, taken.heap_tids.elements(), self.spec.m);
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
        #[cfg(test)]
        let plan = plan.with(self.defect);
        let Self { space, control, pool, .. } = *self;
        let carve = |space, found, also| {
            let carver = Carver { space, points: &points, plan: &plan, found, also, control, counted };
            pool.run(|| carver.run(random))
        };
        // Under inner product, as many candidates as otherwise, by two metrics. The groups are those of the one that is a metric.
        let Some(euclidean) = space.euclidean() else {
            let near = Candidates::new(points.len(), plan.keep);
            let (order, far) = carve(space, &near, None)?;
            return Ok(Gathered { points, order, near, also: None, far, at_least: 0, mutual: true });
        };
        let near = Candidates::new(points.len(), plan.keep - plan.keep / 4);
        let by_distance = Candidates::new(points.len(), plan.keep / 4);
        pool.run(|| hubs::find(space, &points, &near, control))?;
        let (order, far) = carve(euclidean, &by_distance, Some((space, &near)))?;
        let also = Some(by_distance);
        Ok(Gathered { points, order, near, also, far, at_least: 0, mutual: true })
    }
}

/// The levels of all elements; of those that are no points, 0.
pub(crate) fn draw_levels(random: &Random, points: &[u32], elements: usize, m: u16) -> Vec<u8> {
    let mut levels = vec![0; elements];
    let mut draw = random.fork(1);
    for &point in points {
        levels[point as usize] = level(&mut draw, m);
    }
    levels
}

/// A level as pgvector draws it.
fn level(random: &mut Random, m: u16) -> u8 {
    let level = -random.unit().ln() / f64::from(m).ln();
    (level as u64).min(max_level(m).into()) as u8
}
