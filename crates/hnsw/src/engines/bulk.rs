//! The bulk engine: finds candidates for all elements at once instead of inserting elements.

use distance::Metric;
use graph::max_level;
use rayon::prelude::*;

use super::finish::Completion;
use super::insertion::draft_by_insertion;
use super::intake::{Intake, Setup};
use super::trial;
use crate::candidates::Candidates;
use crate::draft::Draft;
use crate::input::TakenRows;
use crate::partition::plan::{Compared, Plan};
use crate::partition::{Partition, Sample, longest, partition_more};
use crate::random::Random;
use crate::select::{self, Gathered};
use crate::space::{self, Codes, Space, TileOf, Tiles};
use crate::{BuildError, Engine, Finished, Pass, Phase, RowBatch};

/// Differences in recall between two graphs of a sample are noise up to this.
const NOISE: f32 = 0.004;

pub(crate) struct BulkEngine {
    intake: Intake,
    /// Whether insertion may build the graph instead, if a trial shows a higher recall.
    trial: bool,
    #[cfg(test)]
    pub(crate) defect: crate::partition::plan::Defect,
}

impl BulkEngine {
    pub(crate) fn start(setup: Setup) -> Self {
        Self {
            intake: Intake::new(setup),
            trial: true,
            #[cfg(test)]
            defect: crate::partition::plan::Defect::None,
        }
    }

    /// Turns off the trial, for the engine that builds a trial's sample.
    pub(crate) fn without_trial(self) -> Self {
        Self { trial: false, ..self }
    }
}

impl Engine for BulkEngine {
    fn add_all(&mut self, batches: &[RowBatch<'_>]) -> Result<(), BuildError> {
        self.intake.add(batches, |_, _| Ok(()))
    }

    fn finish(self: Box<Self>) -> Result<Finished, BuildError> {
        #[cfg(test)]
        let defect = self.defect;
        let trial = self.trial;
        self.intake.setup.control.ran("intake");
        let (mut setup, taken, _) = self.intake.finish()?;
        let taken = taken.by_tid(&setup.store, &setup.pool);
        let elements = taken.heap_tids.elements();
        // The engines of a trial keep the measure that the build chose for all values.
        if trial {
            setup.measure = setup.measure.for_values(&setup.store, elements, taken.heap_tids.rows());
        }
        setup.control.ran("rows");
        let Setup { spec, measure, pool, control, store, .. } = &setup;
        let mut space = Space::exact(measure.for_building(), store);
        let augments = spec.metric == Metric::InnerProduct && control.runs(Pass::Augmentation);
        let augmentations = if augments { pool.run(|| space::augment(space, elements as u32, control))? } else { None };
        match &augmentations {
            Some(augmentations) => space.augmentations = augmentations,
            None if augments => space.measure = space.measure.euclidean().unwrap_or(*measure),
            None => {}
        }
        // If the metric has no dot-product form, or vectors are augmented, a trial on the data chooses the engine.
        let certain = space.measure.has_products() && augmentations.is_none();
        // Comparing sparse values by two metrics costs more than insertion: then bulk must have the higher recall.
        let costly = space.measure.inverts() && augmentations.is_some();
        let margin = if costly { -NOISE } else { NOISE };
        let tried = if trial && !certain { trial::run(&setup, &taken.points(), trial::MOST)? } else { None };
        if tried.is_some_and(|tried| tried.insertion_finds_more(margin) || tried.insertion_is_cheaper()) {
            let (draft, gathered) = draft_by_insertion(&setup, &taken)?;
            return Completion { setup: &setup, space, trial: false }.run(draft, gathered, taken);
        }
        let coded = space.measure.tiles.and_then(|tiles| Some((tiles, tiles.codes?)));
        let components = control.runs(Pass::Components);
        let encode = |(tiles, kernels)| pool.run(|| Codes::new(space, (tiles, kernels), components, elements, control));
        let codes = coded.filter(|_| control.runs(Pass::Codes)).map(encode).transpose()?;
        #[cfg(test)]
        let codes = codes.map(|mut codes| {
            if defect == crate::partition::plan::Defect::CodesHalved {
                codes.halve();
            }
            codes
        });
        space.codes = codes.as_ref().filter(|codes| codes.are_accurate(space));
        let mut layers = Layers {
            setup: &setup,
            space,
            sample: None,
            #[cfg(test)]
            defect,
        };
        let (draft, gathered) = layers.build(&taken)?;
        let space = layers.space;
        Completion { setup: &setup, space, trial: trial && tried.is_none() }.run(draft, gathered, taken)
    }
}

/// Finds candidates layer by layer.
struct Layers<'a> {
    setup: &'a Setup,
    space: Space<'a>,
    /// Of layer 0, for [`partition_more`].
    sample: Option<Sample>,
    #[cfg(test)]
    defect: crate::partition::plan::Defect,
}

impl Layers<'_> {
    /// Draws levels, fills the upper layers, and finds candidates for layer 0.
    fn build(&mut self, taken: &TakenRows) -> Result<(Draft, Gathered), BuildError> {
        let Setup { spec, pool, control, .. } = self.setup;
        let random = Random::new(spec.seed);
        let points = taken.points();
        let levels = draw_levels(&random, &points, taken.heap_tids.elements(), spec.m);
        let mut draft = Draft::new(spec.m, levels);
        control.ran("levels");
        let m = draft.m();
        control.progress().enter(Phase::Graph, points.len() as u64);
        let top = draft.entry_point().map_or(0, |(_, top)| top);
        self.draw_sample(&points, &random.fork(2))?;
        // All upper layers run together, since each has few tasks. Layer 0 follows, so that its candidates and theirs are never in memory
        // together.
        let gather =
            |layer: u8| self.gather(draft.on_layer(layer).collect(), m, false, &random.fork(2 + u64::from(layer)));
        let upper = (0..usize::from(top)).into_par_iter();
        let upper = pool.run(|| control.section("upper layers").map(upper, |below| gather(below as u8 + 1)))?;
        for (layer, gathered) in (1..).zip(upper) {
            select::fill(&mut draft, layer, gathered, self.space, pool, control)?;
        }
        let lowest = self.gather(points, 2 * m, true, &random.fork(2))?;
        Ok((draft, lowest))
    }

    /// If there are many points, draws a sample of them, and drops the codes if they do not rank its true neighbors. Not under inner product:
    /// there the longest vectors and Euclidean distances add candidates.
    fn draw_sample(&mut self, points: &[u32], random: &Random) -> Result<(), BuildError> {
        let Setup { spec, pool, control, .. } = self.setup;
        let (space, plan) = (self.space, self.plan(points.len(), 2 * usize::from(spec.m)));
        let is_usual = space.measure.tiles.is_some() && space.euclidean().is_none();
        if is_usual && plan.more > 0 && points.len() > plan.leaf_max && control.runs(Pass::MorePartitions) {
            let sample = pool.run(|| Sample::draw(space, points, random, control))?;
            self.space.codes = space.codes.filter(|_| sample.ranked);
            self.sample = Some(sample);
        }
        Ok(())
    }

    /// The plan for `points` points whose lists have `list` slots.
    fn plan(&self, points: usize, list: usize) -> Plan {
        let compared = match (self.space.codes, self.space.measure.tiles) {
            (Some(codes), _) if codes.of_components() => Compared::ByComponents,
            (Some(_), _) => Compared::ByCodes,
            (None, Some(Tiles { tile: TileOf::Bits(_), .. })) => Compared::ByBits,
            (None, Some(_)) => Compared::ByTiles,
            (None, None) => Compared::Inverted,
        };
        let plan = Plan::new(self.setup.spec.ef_construction, list, compared, points);
        #[cfg(test)]
        let plan = plan.with(self.defect);
        plan
    }

    /// Finds candidates for the lists of `points`, of `list` slots each. If `counted`, as layer 0 is, reports progress and may partition again.
    fn gather(&self, points: Vec<u32>, list: usize, counted: bool, random: &Random) -> Result<Gathered, BuildError> {
        let Setup { pool, control, .. } = self.setup;
        let (space, plan) = (self.space, self.plan(points.len(), list));
        let partition =
            |space, found, also| Partition { space, points: &points, plan: &plan, found, also, control, counted };
        // Under inner product, three quarters of the candidates are by inner product, one quarter by Euclidean distance, which also makes
        // the groups, as it is a metric.
        let Some(euclidean) = space.euclidean() else {
            let near = Candidates::new(points.len(), plan.keep);
            let partition = partition(space, &near, None);
            let (order, pivots) = pool.run(|| partition.run(random))?;
            if let Some(sample) = self.sample.as_ref().filter(|_| counted) {
                partition_more(&partition, sample, random, pool)?;
            }
            return Ok(Gathered { points, order, near, also: None, pivots, at_least: 0, inserted: false });
        };
        let near = Candidates::new(points.len(), plan.keep - plan.keep / 4);
        let by_distance = Candidates::new(points.len(), plan.keep / 4);
        if control.runs(Pass::Longest) {
            pool.run(|| longest::find(space, &points, &near, control))?;
        }
        let partition = partition(euclidean, &by_distance, Some((space, &near)));
        let (order, pivots) = pool.run(|| partition.run(random))?;
        let also = Some(by_distance);
        Ok(Gathered { points, order, near, also, pivots, at_least: 0, inserted: false })
    }
}

/// The levels of all elements; 0 for duplicates.
pub(super) fn draw_levels(random: &Random, points: &[u32], elements: usize, m: u16) -> Vec<u8> {
    let mut levels = vec![0; elements];
    let mut draw = random.fork(1);
    for &point in points {
        levels[point as usize] = level(&mut draw, m);
    }
    levels
}

/// A random level, as pgvector draws it: `-ln(u) / ln(m)`, rounded down and capped.
fn level(random: &mut Random, m: u16) -> u8 {
    let level = -random.unit().ln() / f64::from(m).ln();
    (level as u64).min(max_level(m).into()) as u8
}
