//! Measures a graph by searches as pgvector does them, before its pages are made.
//!
//! Recall depends on the data as much as on the graph, so a low recall alone does not show a defect. The measure is relative: each
//! probe is searched for from the entry point, as in pgvector, and from its true nearest element. The difference in recall is the
//! loss on the way: islands, dense clusters without links outwards, regions without incoming links.

mod probes;

use distance::Candidate;
use graph::{ElementValues, Graph};
use rayon::prelude::*;

use crate::draft::Draft;
use crate::exact;
use crate::input::ValueStore;
use crate::search::{Links, Loading, Searcher};
use crate::space::{Measure, Query, Space};
use crate::{BuildError, BuildSpec, Control};
pub(crate) use probes::Sample;

/// Elements in the sample for self-recall.
const SAMPLE: usize = 100;
/// pgvector's default `hnsw.ef_search`.
const EF_SEARCH: usize = 40;
/// Probes searched for with `EF_SEARCH`; these searches take as long as all others of the guard.
const PROBES_WIDE: usize = 100;
/// Half the default: losses show more clearly.
const EF_LOW: usize = 20;
/// Neighbors per probe.
const K: usize = 10;

/// Recall lost on the way that is more than chance. On real embeddings it is less than .01, and mostly 0.
pub(crate) const LOST: f32 = 0.012;

/// Recall of searches for the probes, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quality {
    /// From the entry point, with `EF_SEARCH`.
    pub(crate) recall: f32,
    /// From the entry point, with `EF_LOW`.
    pub(crate) low: f32,
    /// From the entry point, with `EF_LOW`: of probes that are rows, and of probes between rows.
    pub(crate) kinds: [f32; 2],
    /// From the true nearest element, with `EF_LOW`.
    pub(crate) local: f32,
    /// The standard error of the mean loss.
    pub(crate) deviation: f32,
}

impl Quality {
    /// The recall lost on the way from the entry point.
    pub(crate) fn lost(&self) -> f32 {
        (self.local - self.low).max(0.0)
    }

    /// Whether the loss is more than chance.
    pub(crate) fn loses(&self) -> bool {
        self.lost() > LOST.max(1.5 * self.deviation)
    }

    /// Whether a larger sample may show a loss that is more than chance.
    pub(crate) fn may_lose(&self) -> bool {
        const DOUBT: f32 = 0.004;
        self.lost() > DOUBT.max(1.5 * self.deviation)
    }

    /// Whether this graph's recall is higher than another's by `more`, and not clearly lower for either kind of probes: lower by a small
    /// share of the gain at most.
    pub(crate) fn finds_more_than(&self, other: &Self, more: f32) -> bool {
        const HARDLY: f32 = 0.005;
        const SHARE: f32 = 0.125;
        let gain = ((self.low + self.recall) - (other.low + other.recall)) / 2.0;
        let tolerated = HARDLY.max(SHARE * gain);
        gain > more && self.kinds.iter().zip(other.kinds).all(|(own, other)| *own > other - tolerated)
    }
}

/// A graph's probes with their true neighbors.
pub(crate) struct Guard<'a> {
    measure: Measure,
    store: &'a ValueStore,
    probes: Vec<Vec<u8>>,
    exact: Vec<Vec<Candidate>>,
}

impl<'a> Guard<'a> {
    /// Draws probes from `points`, and finds their true neighbors among `points`. `space` has the exact distances of searches. Runs on the
    /// threads of the pool it is called from.
    pub(crate) fn new(
        space: Space<'a>,
        spec: &BuildSpec,
        points: &[u32],
        draft: &Draft,
        sample: Sample,
        control: &Control,
    ) -> Result<Self, BuildError> {
        let Space { measure, store, .. } = space;
        let gap = |point| draft.neighbors(point, 0).first().map_or(f32::INFINITY, |&near| space.distance(point, near));
        let probes = probes::draw(spec, store, points, measure.metric, sample, gap);
        let exact = exact::nearest(space, points, &probes, K, control.section("probes' neighbors"))?;
        Ok(Self { measure, store, probes, exact })
    }

    /// Searches for all probes. Runs on the threads of the pool it is called from.
    pub(crate) fn quality(&self, graph: &(impl Links + Sync), control: &Control) -> Result<Quality, BuildError> {
        type Scratch = (Searcher, Query);
        let probes = self.probes.par_iter().zip(&self.exact).enumerate();
        let each = control.section("probes").map_init(probes, |scratch: &mut Scratch, (at, (probe, exact))| {
            let [recall, low, local] = self.search(graph, scratch, probe, exact, at < PROBES_WIDE);
            let kinds = if probes::is_row(at) { [low, 0.0] } else { [0.0, low] };
            Ok([recall, low, local, (local - low) * (local - low), kinds[0], kinds[1]])
        })?;
        let sums = each.into_iter().fold([0f32; 6], |a, b| std::array::from_fn(|at| a[at] + b[at]));
        let mean = |sum: f32, count: usize| if count == 0 { 1.0 } else { sum / count as f32 };
        let (all, wide) = (self.probes.len(), self.probes.len().min(PROBES_WIDE));
        let [recall, low, local, squares, rows, between] = sums;
        let of_rows = (0..all).filter(|&at| probes::is_row(at)).count();
        let kinds = [mean(rows, of_rows), mean(between, all - of_rows)];
        let (recall, low, local) = (mean(recall, wide), mean(low, all), mean(local, all));
        let variance = mean(squares, all) - (local - low) * (local - low);
        Ok(Quality { recall, low, kinds, local, deviation: (variance.max(0.0) / all.max(1) as f32).sqrt() })
    }

    fn search(
        &self,
        graph: &impl Links,
        (searcher, query): &mut (Searcher, Query),
        probe: &[u8],
        exact: &[Candidate],
        wide: bool,
    ) -> [f32; 3] {
        self.measure.ask(query, probe);
        let query = &*query;
        let mut distances = Loading {
            distance: |element| self.measure.distance_of(query, probe, self.store.value(element)),
            bytes: |element| self.store.value(element),
        };
        let Some(furthest) = exact.last() else { return [1.0; 3] };
        let share = |found: &[Candidate]| {
            let hits = found.iter().take(exact.len()).filter(|near| near.distance() <= furthest.distance()).count();
            hits as f32 / exact.len() as f32
        };
        let recall = if wide { share(&searcher.search(graph, distances, |_| {}, EF_SEARCH)) } else { 0.0 };
        let low = share(&searcher.search(graph, distances, |_| {}, EF_LOW));
        let local = share(&searcher.layer(graph, &mut distances, |_| {}, &exact[..1], EF_LOW, 0));
        [recall, low, local]
    }
}

/// The share of a sample of elements that a search for their value finds, 0 to 1; 1 for an empty graph. Runs on the threads of the
/// pool it is called from.
pub(crate) fn self_recall(graph: &Graph, space: Space<'_>, control: &Control) -> Result<f32, BuildError> {
    let sample: Vec<u32> = graph.elements().step_by((graph.len() / SAMPLE).max(1)).collect();
    let finds_itself = |(searcher, query): &mut (Searcher, Query), &element: &u32| {
        space.ask(query, element);
        let query = &*query;
        let results = searcher.search(graph, |other| space.distance_of(query, other), |_| {}, EF_SEARCH);
        let value = space.store.value(element);
        Ok(results.iter().any(|result| space.store.value(result.element()) == value))
    };
    let found = control.section("self-recall").map_init(sample.par_iter(), finds_itself)?;
    let found = found.into_iter().filter(|&found| found).count();
    Ok(if sample.is_empty() { 1.0 } else { found as f32 / sample.len() as f32 })
}

#[cfg(test)]
mod tests {
    use super::Quality;

    #[test]
    fn a_kind_of_probes_may_lose_a_small_share_of_the_gain() {
        let quality = |recall, rows, between| {
            let low = (2.0 * rows + between) / 3.0;
            Quality { recall, low, kinds: [rows, between], ..Quality::default() }
        };
        let island = quality(0.99, 0.61, 0.978);
        assert!(quality(0.99, 0.995, 0.97).finds_more_than(&island, 0.01), "three clusters of near-identical rows");
        assert!(!quality(0.99, 0.995, 0.94).finds_more_than(&island, 0.01), "probes between rows lose too much");
        let (few, more) = (quality(0.9, 0.8, 0.8), quality(0.9, 0.83, 0.794));
        assert!(!more.finds_more_than(&few, 0.0), "the gain is small");
        assert!(quality(0.9, 0.83, 0.796).finds_more_than(&few, 0.0) && !few.finds_more_than(&few, 0.0));
    }
}
