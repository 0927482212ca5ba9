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
use probes::Kind;
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
    /// From the entry point, with `EF_LOW`, by the kind of probes; 1 for a kind without probes.
    pub(crate) kinds: [f32; Kind::COUNT],
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

    /// The mean of both `ef_search`, from the entry point.
    pub(crate) fn mean(&self) -> f32 {
        (self.low + self.recall) / 2.0
    }

    /// Whether this graph's recall is higher than another's by `more`, and not clearly lower for any kind of probes: lower by a small
    /// share of the gain at most.
    pub(crate) fn finds_more_than(&self, other: &Self, more: f32) -> bool {
        const HARDLY: f32 = 0.005;
        const SHARE: f32 = 0.125;
        let gain = self.mean() - other.mean();
        let tolerated = HARDLY.max(SHARE * gain);
        gain > more && self.kinds.iter().zip(other.kinds).all(|(own, other)| *own > other - tolerated)
    }
}

/// A graph's probes with their true neighbors.
pub(crate) struct Guard<'a> {
    measure: Measure,
    store: &'a ValueStore,
    probes: Vec<Vec<u8>>,
    kinds: Vec<Kind>,
    exact: Vec<Vec<Candidate>>,
}

/// What searches for a probe find, nearest first.
struct Found {
    /// From the entry point with `EF_SEARCH`, if wanted.
    wide: Vec<Candidate>,
    /// From the entry point with `EF_LOW`.
    low: Vec<Candidate>,
    /// From the true nearest element with `EF_LOW`.
    local: Vec<Candidate>,
}

/// A graph without one element.
struct Without<'a, L>(&'a L, Option<u32>);

impl<L: Links> Links for Without<'_, L> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        self.0.entry()
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        let hidden = self.1;
        self.0.neighbors(element, layer).filter(move |&other| Some(other) != hidden)
    }
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
        let (probes, kinds) = probes::draw(spec, store, points, measure.metric, sample, gap);
        // One more, since the nearest of a hidden element is itself.
        let mut exact = exact::nearest(space, points, &probes, K + 1, control.section("probes' neighbors"))?;
        for (exact, kind) in exact.iter_mut().zip(&kinds) {
            exact.retain(|near| Some(near.element()) != kind.hidden());
            exact.truncate(K);
        }
        Ok(Self { measure, store, probes, kinds, exact })
    }

    /// Searches for all probes. Runs on the threads of the pool it is called from.
    pub(crate) fn quality(&self, graph: &(impl Links + Sync), control: &Control) -> Result<Quality, BuildError> {
        type Scratch = (Searcher, Query);
        let each = control
            .section("probes")
            .map_init((0..self.probes.len()).into_par_iter(), |scratch: &mut Scratch, at| {
                Ok(self.search(graph, scratch, at))
            })?;
        let mean = |sum: f32, count: usize| if count == 0 { 1.0 } else { sum / count as f32 };
        let ([mut all, mut wide], [mut recall, mut low, mut local, mut squares]) = ([0; 2], [0.0; 4]);
        let mut kinds = [(0.0, 0); Kind::COUNT];
        for (at, (found, kind)) in each.into_iter().zip(&self.kinds).enumerate() {
            let Some(found) = found else { continue };
            all += 1;
            wide += usize::from(at < PROBES_WIDE);
            recall += found[0];
            low += found[1];
            local += found[2];
            squares += (found[2] - found[1]) * (found[2] - found[1]);
            let (sum, count) = &mut kinds[kind.number()];
            *sum += found[1];
            *count += 1;
        }
        let kinds = kinds.map(|(sum, count)| mean(sum, count));
        let (recall, low, local) = (mean(recall, wide), mean(low, all), mean(local, all));
        let variance = mean(squares, all) - (local - low) * (local - low);
        Ok(Quality { recall, low, kinds, local, deviation: (variance.max(0.0) / all.max(1) as f32).sqrt() })
    }

    /// Neighbors of probes that are lost on the way, in ascending order: a search from the true nearest element finds them, one from the entry
    /// point does not, both with `EF_LOW`. Runs on the threads of the pool it is called from.
    pub(crate) fn missed(&self, graph: &(impl Links + Sync), control: &Control) -> Result<Vec<u32>, BuildError> {
        let missed_by = |scratch: &mut (Searcher, Query), at: usize| {
            let found = self.find(graph, scratch, at, false);
            let is_in = |found: &[Candidate], near: &Candidate| found.iter().any(|it| it.element() == near.element());
            let lost = found.iter().flat_map(|Found { low, local, .. }| {
                self.exact[at].iter().filter(|near| is_in(local, near) && !is_in(low, near))
            });
            Ok(lost.map(|near| near.element()).collect::<Vec<u32>>())
        };
        let probes = (0..self.probes.len()).into_par_iter();
        let mut missed = control.section("neighbors that probes miss").map_init(probes, missed_by)?.concat();
        missed.sort_unstable();
        missed.dedup();
        Ok(missed)
    }

    /// The recall of three searches for the probe at a position: from the entry point with `EF_SEARCH`, which is 0 after the first
    /// [`PROBES_WIDE`] probes, and with `EF_LOW`; from the true nearest element with `EF_LOW`. `None` if no element is at a finite distance.
    fn search(&self, graph: &impl Links, scratch: &mut (Searcher, Query), at: usize) -> Option<[f32; 3]> {
        let (exact, hidden) = (&self.exact[at], self.kinds[at].hidden());
        let Found { wide, low, local } = self.find(graph, scratch, at, at < PROBES_WIDE)?;
        let furthest = exact.last()?;
        let share = |found: &[Candidate]| {
            // A search may begin at the hidden element.
            let found = found.iter().filter(|near| Some(near.element()) != hidden).take(exact.len());
            found.filter(|near| near.distance() <= furthest.distance()).count() as f32 / exact.len() as f32
        };
        Some([share(&wide), share(&low), share(&local)])
    }

    /// Searches for the probe at a position. `None` if no element is at a finite distance.
    fn find(
        &self,
        graph: &impl Links,
        (searcher, query): &mut (Searcher, Query),
        at: usize,
        wide: bool,
    ) -> Option<Found> {
        let (probe, nearest) = (self.probes[at].as_slice(), self.exact[at].get(..1)?);
        let graph = &Without(graph, self.kinds[at].hidden());
        self.measure.prepare(query, probe);
        let query = &*query;
        let mut distances = Loading {
            distance: |element| self.measure.distance_of(query, probe, self.store.value(element)),
            bytes: |element| self.store.value(element),
        };
        let wide = if wide { searcher.search(graph, distances, |_| {}, EF_SEARCH) } else { Vec::new() };
        let low = searcher.search(graph, distances, |_| {}, EF_LOW);
        let local = searcher.layer(graph, &mut distances, |_| {}, nearest, EF_LOW, 0);
        Some(Found { wide, low, local })
    }
}

/// The share of a sample of elements that a search for their value finds, 0 to 1; 1 for an empty graph. Runs on the threads of the
/// pool it is called from.
pub(crate) fn self_recall(graph: &Graph, space: Space<'_>, control: &Control) -> Result<f32, BuildError> {
    let sample: Vec<u32> = graph.elements().step_by((graph.len() / SAMPLE).max(1)).collect();
    let finds_itself = |(searcher, query): &mut (Searcher, Query), &element: &u32| {
        space.prepare(query, element);
        let query = &*query;
        let results = searcher.search(graph, |other| space.distance_of(query, other), |_| {}, EF_SEARCH);
        Ok(results.iter().any(|result| space.value(result.element()) == space.value(element)))
    };
    let found = control.section("self-recall").map_init(sample.par_iter(), finds_itself)?;
    let found = found.into_iter().filter(|&found| found).count();
    Ok(if sample.is_empty() { 1.0 } else { found as f32 / sample.len() as f32 })
}

#[cfg(test)]
mod tests {
    use graph::ValueType;

    use super::{Guard, K, Kind, Quality, Sample};
    use crate::draft::Draft;
    use crate::testing::{euclidean, pool, store};
    use crate::{BuildSpec, Control, Metric};

    #[test]
    fn hidden_elements_are_not_among_the_neighbors() {
        const POINTS: u32 = 600;
        // On a line; each is linked to the nearest on both sides.
        let points: Vec<u32> = (0..POINTS).collect();
        let store = store(&points.iter().map(|&at| [at as f32]).collect::<Vec<_>>());
        let mut draft = Draft::new(16, points.iter().map(|&at| u8::from(at == 300)).collect());
        for &at in &points {
            let near = (1..=16).flat_map(|step| [at.wrapping_sub(step), at + step]);
            draft.set(at, 0, near.filter(|other| points.contains(other)));
        }
        let (spec, control) = (BuildSpec::new(ValueType::Vector, Metric::L2, 1, 16, 64), Control::default());
        let quality = pool().run(|| {
            let guard = Guard::new(euclidean::<1>(&store), &spec, &points, &draft, Sample::Small, &control).unwrap();
            let of = |number| guard.kinds.iter().filter(|kind| kind.number() == number).count();
            assert!((0..Kind::COUNT).all(|kind| of(kind) > guard.kinds.len() / 4), "{:?}", guard.kinds);
            for (exact, kind) in guard.exact.iter().zip(&guard.kinds) {
                assert_eq!(exact.len(), K);
                let own = exact.iter().find(|near| Some(near.element()) == kind.hidden());
                assert!(own.is_none(), "{own:?} is hidden");
            }
            guard.quality(&draft, &control).unwrap()
        });
        assert!(quality.kinds.iter().all(|&recall| recall > 0.99), "{quality:?}");
    }

    #[test]
    fn neighbors_that_searches_from_the_entry_point_miss_are_listed() {
        const POINTS: u32 = 1200;
        // Two groups on a line without a link between them; the entry point is in the first.
        let points: Vec<u32> = (0..POINTS).collect();
        let half = POINTS / 2;
        let store = store(&points.iter().map(|&at| [(at + at / half * POINTS) as f32]).collect::<Vec<_>>());
        let mut draft = Draft::new(16, points.iter().map(|&at| u8::from(at % half == 300)).collect());
        for &at in &points {
            let near = (1..=16).flat_map(|step| [at.wrapping_sub(step), at + step]);
            draft.set(at, 0, near.filter(|&other| other < POINTS && other / half == at / half));
        }
        let (spec, control) = (BuildSpec::new(ValueType::Vector, Metric::L2, 1, 16, 64), Control::default());
        let missed = pool().run(|| {
            let guard = Guard::new(euclidean::<1>(&store), &spec, &points, &draft, Sample::Large, &control).unwrap();
            guard.missed(&draft, &control).unwrap()
        });
        assert!(missed.len() > 100 && missed.is_sorted_by(|a, b| a < b), "{}", missed.len());
        let of_first = missed.iter().filter(|&&element| element < half).count();
        assert_eq!(of_first, 0, "all of the entry point's group is found");
    }

    #[test]
    fn probes_without_neighbors_do_not_count() {
        const POINTS: u32 = 1000;
        let points: Vec<u32> = (0..POINTS).collect();
        let (spec, control) = (BuildSpec::new(ValueType::Vector, Metric::L2, 1, 16, 64), Control::default());
        let quality = |value: fn(u32) -> f32| {
            let store = store(&points.iter().map(|&at| [value(at)]).collect::<Vec<_>>());
            // No links: a search finds the entry point alone.
            let draft = Draft::new(16, points.iter().map(|&at| u8::from(at == 0)).collect());
            pool().run(|| {
                let space = euclidean::<1>(&store);
                Guard::new(space, &spec, &points, &draft, Sample::Large, &control)
                    .unwrap()
                    .quality(&draft, &control)
                    .unwrap()
            })
        };
        // Their squares, also those of their differences, overflow.
        let overflowing = quality(|at| 1e25 * (at + 1) as f32);
        assert_eq!((overflowing.recall, overflowing.low), (1.0, 1.0), "no probe counts");
        let few = quality(|at| if at % 100 == 0 { 1e25 * (at + 1) as f32 } else { at as f32 });
        assert!(few.recall < 0.05 && few.low < 0.05, "{few:?}");
    }

    #[test]
    fn a_kind_of_probes_may_lose_a_small_share_of_the_gain() {
        let quality = |recall, rows, between| {
            let low = (2.0 * rows + between) / 3.0;
            Quality { recall, low, kinds: [rows, rows, between], ..Quality::default() }
        };
        let island = quality(0.99, 0.61, 0.978);
        assert!(quality(0.99, 0.995, 0.97).finds_more_than(&island, 0.01), "three clusters of near-identical rows");
        assert!(!quality(0.99, 0.995, 0.94).finds_more_than(&island, 0.01), "probes between rows lose too much");
        let (few, more) = (quality(0.9, 0.8, 0.8), quality(0.9, 0.83, 0.794));
        assert!(!more.finds_more_than(&few, 0.0), "the gain is small");
        assert!(quality(0.9, 0.83, 0.796).finds_more_than(&few, 0.0) && !few.finds_more_than(&few, 0.0));
    }
}
