//! Turns the candidates of any engine into a finished graph.

use distance::Metric;

use super::insertion::insert_all;
use super::intake::Setup;
use super::trial;
use crate::draft::Draft;
use crate::input::TakenRows;
use crate::random::Random;
use crate::repair::across::Across;
use crate::repair::guard::{self, Guard, Quality, Sample};
use crate::repair::navigate::{self, Navigation};
use crate::repair::{duplicates, missed, reach};
use crate::select::{self, Gathered};
use crate::space::Space;
use crate::{BuildError, Finished, Pass, Phase, Remedy, Report, memory, order};

/// The least gain in recall for which insertion's graph is used, since at larger `ef_search` its recall is usually lower. The trial before
/// must show the same gain: a small sample flatters insertion, which considers nearly all of its rows for each element.
const INSERTION_GAIN: f32 = 0.015;

/// If more recall than this is lost, groups of elements are islands, and links across are tried before navigation. If less is lost, links
/// across reach the recall of navigation, but searches compute more distances.
const ISLANDS: f32 = 0.1;

/// The least gain in recall for which links across are used, as they make searches compute up to a third more distances. Once they are used,
/// more of them, or those from a larger sample, must gain another third of it.
const ACROSS_GAIN: f32 = 0.03;

/// Sizes of the random samples from which links across take the nearest elements. With many groups, the nearest of a small sample are of
/// arbitrary groups; with few groups, the nearest of a large sample are of the element's own group.
const ACROSS_SAMPLES: [usize; 2] = [128, 1024];

/// Navigation is left out if a trial of it on what the guard's probes miss mends less than this share of the loss.
const NAVIGATION_SHARE: f32 = 0.1;

/// It is also left out if the trial raises the recall of all probes by less than this, or by less than [`NAVIGATION_CLEAR_GAIN`] and less
/// than [`NAVIGATION_OF_MISSES`], a share of all that searches miss. The graph would take twice the CPU time, and its recall for other
/// queries would hardly differ.
const NAVIGATION_GAIN: f32 = 0.003;
const NAVIGATION_CLEAR_GAIN: f32 = 0.01;
const NAVIGATION_OF_MISSES: f32 = 1.0 / 16.0;

/// Random streams for links across and for missed elements; the layers use lower numbers.
const ACROSS_STREAM: u64 = 1 << 32;
const MISSED_STREAM: u64 = ACROSS_STREAM + 1;

/// With a smaller loss insertion is not tried: even a graph that loses nothing would hardly gain [`INSERTION_GAIN`], a mean over
/// two `ef_search`: at the larger one, less is lost.
const INSERTION_LOSS: f32 = 2.0 * INSERTION_GAIN;

/// Insertion is also tried below this recall from the true nearest element: then the lists themselves may be poor, not only the way to them.
/// Embeddings have .86 to .95 with `m` of 8 and 16.
const POOR_LISTS: f32 = 0.75;

/// The fewest elements for which insertion is tried. With fewer, a trial costs about as much as insertion, and tells little.
const INSERTION_FROM: usize = 8000;

#[derive(Clone, Copy)]
pub(crate) struct Completion<'a> {
    pub(crate) setup: &'a Setup,
    /// The space by which neighbors are selected.
    pub(crate) space: Space<'a>,
    /// Whether insertion may be tried if the graph's searches get lost: it was not tried before.
    pub(crate) trial: bool,
}

/// The measured graph, before duplicates are linked.
struct Measured {
    draft: Draft,
    quality: Quality,
    remedy: Remedy,
}

impl Completion<'_> {
    /// Fills the lists, measures the graph and repairs it if searches get lost, links elements that searches miss, duplicates and unreachable
    /// elements, and orders the elements for the pages.
    pub(crate) fn run(self, draft: Draft, gathered: Gathered, taken: TakenRows) -> Result<Finished, BuildError> {
        let Setup { control, pool, store, .. } = self.setup;
        let (rows, elements) = (taken.heap_tids.rows() as u64, draft.len() as u64);
        let inserted = gathered.inserted;
        let rounds = if inserted { 1 } else { 2 };
        control.progress().enter(Phase::Repair, rounds * gathered.points.len() as u64);
        let near = gathered.near_order(&taken.duplicates);
        let Measured { mut draft, quality, remedy } = self.measured(draft, gathered, &taken)?;
        pool.run(|| duplicates::link(&mut draft, &taken, control))?;
        control.ran("duplicates");
        let reaches = control.runs(Pass::Reach);
        let relinked = if reaches { pool.run(|| reach::repair(&mut draft, self.space, control))? } else { 0 };
        let graph = pool.run(|| draft.finish(taken.heap_tids, control))?;
        control.progress().enter(Phase::Order, elements);
        let order = match control.runs(Pass::PageOrder) {
            true => {
                let per_page = order::elements_per_page(&graph, &**store);
                pool.run(|| order::by_page(&graph, &near, per_page, control))?
            }
            false => graph.elements().collect(),
        };
        let self_recall = pool.run(|| guard::self_recall(&graph, self.setup.searched(), control))?;
        let unreachable = pool.run(|| reach::count_unreachable(&graph, control))?;
        let report = Report {
            rows,
            elements,
            relinked,
            unreachable,
            self_recall,
            recall: quality.recall,
            lost: quality.lost(),
            remedy,
        };
        Ok(Finished { graph, values: store.clone(), order, report })
    }

    /// Fills the lists of layer 0, measures the graph, tries remedies if searches lose more than chance, and links elements that searches
    /// miss. If searches still lose more than [`INSERTION_LOSS`], or the lists are [`POOR_LISTS`], and insertion has a higher recall on a
    /// sample, insertion builds a second graph, and the better one is used.
    fn measured(self, mut draft: Draft, gathered: Gathered, taken: &TakenRows) -> Result<Measured, BuildError> {
        let Setup { spec, pool, control, .. } = self.setup;
        let (points, order, inserted) = (gathered.points.clone(), gathered.order.clone(), gathered.inserted);
        select::fill(&mut draft, 0, gathered, self.space, pool, control)?;
        let searched = self.setup.searched();
        let guard = |sample| pool.run(|| Guard::new(searched, spec, &points, &draft, sample, control));
        let mut sample = guard(Sample::Small)?;
        let mut quality = pool.run(|| sample.quality(&draft, control))?;
        if !inserted && quality.may_lose() {
            sample = guard(Sample::Large)?;
            quality = pool.run(|| sample.quality(&draft, control))?;
        }
        let mut measured = Measured { quality, draft, remedy: Remedy::None };
        if inserted {
            return Ok(measured);
        }
        let remedies = control.runs(Pass::Remedies);
        if remedies && quality.loses() {
            measured = self.mended(measured, &sample, (&points, &order))?;
        }
        // Links to missed elements would replace links across.
        if measured.remedy != Remedy::LinksAcross && self.links_missed() {
            self.link_missed(&mut measured.draft, &points)?;
            if measured.quality.loses() {
                measured.quality = pool.run(|| sample.quality(&measured.draft, control))?;
            }
        }
        let quality = measured.quality;
        let falls_short = (quality.loses() && quality.lost() > INSERTION_LOSS) || quality.local < POOR_LISTS;
        let finds_more = || {
            let tried = trial::run_of_near(self.setup, &points, &order)?;
            Ok::<_, BuildError>(tried.is_some_and(|tried| tried.insertion_finds_more(INSERTION_GAIN)))
        };
        if remedies && falls_short && self.trial && points.len() >= INSERTION_FROM && finds_more()? {
            // All points are inserted, and their lists filled once more.
            control.progress().expect_more(2 * points.len() as u64);
            let (mut draft, gathered) = insert_all(self.setup, taken, points)?;
            select::fill(&mut draft, 0, gathered, searched, pool, control)?;
            let quality = pool.run(|| sample.quality(&draft, control))?;
            if quality.finds_more_than(&measured.quality, INSERTION_GAIN) {
                return Ok(Measured { draft, quality, remedy: Remedy::Insertion });
            }
        }
        Ok(measured)
    }

    /// Tries links across if the loss exceeds [`ISLANDS`]. If it is smaller, or they do not help, tries navigation, provided that the loss is
    /// large enough for a table of this size ([`navigate::may_mend`]) and that a trial mends enough of it. `points` and `order` are as in
    /// [`Gathered`].
    fn mended(
        self,
        mut measured: Measured,
        sample: &Guard<'_>,
        (points, order): (&[u32], &[u32]),
    ) -> Result<Measured, BuildError> {
        let Setup { spec, pool, control, .. } = self.setup;
        // The selection has freed many small blocks, which the remedies cannot reuse.
        memory::give_back();
        let quality_of = |draft: &Draft| pool.run(|| sample.quality(draft, control));
        if measured.quality.lost() > ISLANDS {
            measured = self.link_across(measured, points, quality_of)?;
            memory::give_back();
        }
        // Navigation selects all neighbors again, and would drop most links across.
        let may_mend = navigate::may_mend(measured.quality.lost(), points.len());
        let navigation = Navigation::new(spec.ef_construction, self.space, pool, control);
        let Quality { low, .. } = measured.quality;
        let enough = NAVIGATION_GAIN
            .max(NAVIGATION_SHARE * measured.quality.lost())
            .max(NAVIGATION_CLEAR_GAIN.min(NAVIGATION_OF_MISSES * (1.0 - low)));
        let mends = || {
            let mut tried = self.copy(&measured.draft)?;
            let missed = pool.run(|| sample.missed(&tried, control))?;
            navigation.try_for(&mut tried, points, &missed)?;
            Ok::<_, BuildError>(quality_of(&tried)?.low - low >= enough)
        };
        if measured.remedy == Remedy::None && may_mend && mends()? {
            let mut mended = self.copy(&measured.draft)?;
            navigation.improve(&mut mended, (points, order))?;
            let quality = quality_of(&mended)?;
            if quality.finds_more_than(&measured.quality, 0.0) {
                measured = Measured { quality, draft: mended, remedy: Remedy::Navigation };
            }
        }
        Ok(measured)
    }

    /// Whether elements that searches miss are linked. Not under inner product: there the nearest elements are the longest, so that a search
    /// for a short element does not end near it.
    fn links_missed(self) -> bool {
        let Setup { spec, control, .. } = self.setup;
        spec.metric != Metric::InnerProduct && control.runs(Pass::MissedElements)
    }

    fn link_missed(self, draft: &mut Draft, points: &[u32]) -> Result<(), BuildError> {
        let Setup { spec, pool, control, .. } = self.setup;
        let random = Random::new(spec.seed).fork(MISSED_STREAM);
        pool.run(|| missed::link(draft, points, self.space, random, control))
    }

    fn copy(self, draft: &Draft) -> Result<Draft, BuildError> {
        self.setup.pool.run(|| draft.copy(&self.setup.control))
    }

    /// Tries links across with several sample sizes and numbers of links, and keeps the best graph if it gains [`ACROSS_GAIN`],
    /// and if links to missed elements, which would follow otherwise, do not find more.
    fn link_across(
        self,
        mut measured: Measured,
        points: &[u32],
        quality_of: impl Fn(&Draft) -> Result<Quality, BuildError>,
    ) -> Result<Measured, BuildError> {
        let Setup { spec, pool, control, .. } = self.setup;
        let m = measured.draft.m();
        let (before, unlinked) = (self.copy(&measured.draft)?, measured.quality);
        let mut with_missed = unlinked;
        if self.links_missed() {
            let mut draft = self.copy(&before)?;
            self.link_missed(&mut draft, points)?;
            with_missed = quality_of(&draft)?;
        }
        for drawn in ACROSS_SAMPLES {
            let random = Random::new(spec.seed).fork(ACROSS_STREAM);
            let across = pool.run(|| Across::find(points, (drawn, 3 * m / 4), self.space, random, control))?;
            let mut draft = self.copy(&before)?;
            let mut counts = [m / 4, m / 2, 3 * m / 4].map(|count| count.max(1)).to_vec();
            counts.dedup();
            for count in counts {
                pool.run(|| across.link(&mut draft, count, control))?;
                let quality = quality_of(&draft)?;
                if !quality.finds_more_than(&unlinked, 0.0) {
                    // More of these links would only replace better ones.
                    break;
                }
                let worth = if measured.remedy == Remedy::None { ACROSS_GAIN } else { ACROSS_GAIN / 3.0 };
                if quality.finds_more_than(&measured.quality, worth) && quality.mean() >= with_missed.mean() {
                    measured = Measured { draft: self.copy(&draft)?, quality, remedy: Remedy::LinksAcross };
                }
            }
        }
        Ok(measured)
    }
}
