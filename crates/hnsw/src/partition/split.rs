//! Splits points into overlapping groups of neighbors.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use super::grouped::Grouped;
use super::leaf::Leaf;
use super::pivots::{self, Pivots};
use super::plan::Plan;
use super::refine;
use crate::candidates::Candidates;
use crate::random::Random;
use crate::select::NearestPivots;
use crate::space::Space;
use crate::tasks::ranges;
use crate::{BuildError, Control, Pass};

/// From this depth on, groups that are too large are divided at random: more pivots would not separate their points.
const MAX_DEPTH: usize = 8;
/// First random stream of repeated splits; the parts of a group use lower numbers.
const REPEATED: u64 = 1 << 32;
/// The most rounds in which hubs are removed from the pivots.
const HUB_ROUNDS: usize = 3;
/// A pivot with more than this many times its fair share of points is a hub.
const HUB_FACTOR: usize = 16;
/// Points per pivot where all points fit into one leaf.
const FEW: usize = 64;
/// Points with the same nearest pivot are sorted by this many of their next nearest pivots.
const OTHER_PIVOTS: usize = 2;
/// There is one center per this many points. Pivots are sorted by their nearest center, so that near points are adjacent in the order.
/// More centers did not clearly save CPU time or pages per search.
const PER_CENTER: usize = 1 << 18;
/// Points compared with the pivots at a time.
const ASSIGN_AT_ONCE: usize = 512;

/// Finds the candidates of all points of one layer.
pub(crate) struct Partition<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) points: &'a [u32],
    pub(crate) plan: &'a Plan,
    pub(crate) found: &'a Candidates,
    /// Candidates by another metric, found in the same groups.
    pub(crate) also: Option<(Space<'a>, &'a Candidates)>,
    pub(crate) control: &'a Control,
    /// Whether progress is reported, in points of the first split.
    pub(crate) counted: bool,
}

impl Partition<'_> {
    /// Finds the candidates. Returns the positions of all points, ordered by nearest pivot, and the nearest pivots of each. Runs on the
    /// threads of the pool it is called from.
    pub(crate) fn run(&self, random: &Random) -> Result<(Vec<u32>, NearestPivots), BuildError> {
        let all: Vec<u32> = (0..self.points.len() as u32).collect();
        let fan = self.plan.fan(0);
        let pivots_of = OnceLock::new();
        if all.len() <= self.plan.leaf_max && all.len() > 2 * FEW {
            let pivots = random.fork(REPEATED).sample((all.len() / FEW).max(fan + 2), all.len());
            let pivots = pivots.into_iter().map(|at| self.points[at]).collect::<Vec<_>>();
            let nearest = self.assign(&all, &pivots, fan)?;
            _ = pivots_of.set(self.to_elements(&nearest, &pivots)?);
        }
        self.partition(all.clone(), 0, random, &pivots_of)?;
        let pivots_of = pivots_of.into_inner().unwrap_or_default();
        let all = if pivots_of.is_empty() { all } else { self.by_pivot(&pivots_of)? };
        let refines = all.len() > self.plan.leaf_max && self.plan.refines && self.control.runs(Pass::Refinement);
        for (space, found) in self.lists() {
            let tiles = space.measure.tiles.filter(|_| space.codes.is_some() && refines);
            let Some(tiles) = tiles else { continue };
            let cells = all.chunk_by(|&a, &b| pivots_of.get(a as usize * fan) == pivots_of.get(b as usize * fan));
            let cells: Vec<&[u32]> = cells.flat_map(refine::even_cells).collect();
            #[cfg(test)]
            let cells: Vec<&[u32]> = cells.into_iter().filter(|cell| !self.is_lost(cell[0], &pivots_of)).collect();
            let hubs = refine::Hubs::count(self.points, &all, found, self.control)?;
            self.control.section("refinement").for_each_init(cells.into_par_iter(), |scratch, cell| {
                refine::refine_cell(space, tiles, self.points, cell, (found, &hubs), scratch);
                Ok(())
            })?;
        }
        let links = if self.control.runs(Pass::PivotLinks) { self.plan.pivot_links() } else { 0 };
        let rows = if pivots_of.is_empty() { 0 } else { all.len() };
        let mut nearest = vec![0; rows * links];
        if links > 0 {
            // Tasks of as many rows as in `assign`.
            let tasks = nearest.par_chunks_mut(links * ASSIGN_AT_ONCE).zip(pivots_of.par_chunks(fan * ASSIGN_AT_ONCE));
            self.control.section("nearest pivots").for_each(tasks, |(nearest, pivots)| {
                let both = nearest.chunks_exact_mut(links).zip(pivots.chunks_exact(fan));
                both.for_each(|(nearest, pivots)| nearest.copy_from_slice(&pivots[..links]));
                Ok(())
            })?;
        }
        Ok((all, NearestPivots::new(links, nearest)))
    }

    /// All points, ordered by their nearest pivots.
    fn by_pivot(&self, pivots_of: &[u32]) -> Result<Vec<u32>, BuildError> {
        let (fan, points) = (self.plan.fan(0), self.points.len());
        let section = self.control.section("order");
        let is_pivot: Vec<AtomicBool> = (0..=self.points[points - 1]).map(|_| AtomicBool::new(false)).collect();
        section.for_each(ranges(points), |range| {
            let pivots = range.filter_map(|at| is_pivot.get(pivots_of[at * fan] as usize));
            pivots.for_each(|is_pivot| is_pivot.store(true, Ordering::Relaxed));
            Ok(())
        })?;
        let is_pivot = |&at: &u32| is_pivot[self.points[at as usize] as usize].load(Ordering::Relaxed);
        let pivots: Vec<u32> = (0..points as u32).filter(is_pivot).collect();
        if pivots.is_empty() {
            // No distance is finite.
            return Ok((0..points as u32).collect());
        }
        let ranks = self.ranks(&pivots)?;
        // Points without a pivot come last.
        let last = pivots.len() as u32;
        let rank = |at: usize| ranks.get(pivots_of[at * fan] as usize).copied().unwrap_or(last);
        let rank = section.fill(points, rank)?;
        let mut order = Grouped::new(section, (points, pivots.len() + 1), |at| &rank[at..=at], |at| at as u32)?;
        // Where two splits replace one, more points have the same nearest pivot than a cell of the refinement takes. Sorted by their next
        // nearest pivots, near points are adjacent.
        let others = |at: u32| &pivots_of[at as usize * fan..][1..fan.min(OTHER_PIVOTS + 1)];
        section.for_each(order.groups_mut().into_par_iter(), |points| {
            if points.len() > refine::CELL {
                points.sort_unstable_by(|&a, &b| others(a).cmp(others(b)).then(a.cmp(&b)));
            }
            Ok(())
        })?;
        Ok(order.into_items())
    }

    /// For each element that is a pivot, its rank in an order in which near pivots are adjacent: they are grouped by the nearest of a few
    /// of them. `pivots` are positions.
    fn ranks(&self, pivots: &[u32]) -> Result<Vec<u32>, BuildError> {
        let count = (self.points.len() / PER_CENTER).clamp(1, pivots.len());
        let centers = (0..count).map(|center| self.points[pivots[center * pivots.len() / count] as usize]);
        let nearest = self.assign(pivots, &centers.collect::<Vec<u32>>(), 1)?;
        let mut order: Vec<(u32, u32)> = nearest.into_iter().zip(pivots.iter().copied()).collect();
        order.sort_unstable();
        let mut ranks = vec![0; self.points.last().map_or(0, |&last| last as usize + 1)];
        (0..).zip(order).for_each(|(rank, (_, pivot))| ranks[self.points[pivot as usize] as usize] = rank);
        Ok(ranks)
    }

    /// Whether a defect loses the point: all points with the same nearest pivot as the first.
    #[cfg(test)]
    fn is_lost(&self, at: u32, pivots_of: &[u32]) -> bool {
        let fan = self.plan.fan(0);
        self.plan.defect == super::plan::Defect::GroupLost && pivots_of[at as usize * fan] == pivots_of[0]
    }

    /// The candidate lists, each with the space that measures its distances.
    fn lists(&self) -> impl Iterator<Item = (Space<'_>, &Candidates)> {
        std::iter::once((self.space, self.found)).chain(self.also)
    }

    /// Compares a group as a leaf, or splits it. The first split sets `pivots_of`: the nearest pivots of each point, as elements.
    fn partition(
        &self,
        group: Vec<u32>,
        depth: usize,
        random: &Random,
        pivots_of: &OnceLock<Vec<u32>>,
    ) -> Result<(), BuildError> {
        self.control.check()?;
        // A group of clusters far from each other is split rather than compared: distances within its clusters are below the quantisation
        // error.
        let splits = group.len() > self.plan.leaf_aim && depth < MAX_DEPTH;
        if group.len() <= self.plan.leaf_max && self.leaf(&group, depth, splits)? {
            return Ok(());
        }
        let groups = self.parts(&group, depth, random, pivots_of)?;
        #[cfg(test)]
        let mut groups = groups;
        #[cfg(test)]
        if let Some(pivots_of) = pivots_of.get() {
            groups.iter_mut().for_each(|group| group.retain(|&at| !self.is_lost(at, pivots_of)));
        }
        if falls_apart(&group, &groups) {
            drop(group);
        } else {
            return self.shuffled(group, depth, random);
        }
        let fan = self.plan.fan(0) as u64;
        let name = if depth == 0 { "groups" } else { "parts of groups" };
        // The largest first: begun last, it would leave the other threads idle.
        let mut groups: Vec<(usize, Vec<u32>)> = groups.into_iter().enumerate().collect();
        groups.sort_by_key(|(_, part)| std::cmp::Reverse(part.len()));
        self.control.section(name).for_each(groups.into_par_iter(), |(at, part)| {
            let len = part.len() as u64;
            self.partition(part, depth + 1, &random.fork(at as u64 + 1), pivots_of)?;
            if self.counted && depth == 0 {
                self.control.progress().add(len / fan);
            }
            Ok(())
        })
    }

    /// Overlapping parts of a group; none from [`MAX_DEPTH`] on.
    fn parts(
        &self,
        group: &[u32],
        depth: usize,
        random: &Random,
        pivots_of: &OnceLock<Vec<u32>>,
    ) -> Result<Vec<Vec<u32>>, BuildError> {
        if depth >= MAX_DEPTH {
            return Ok(Vec::new());
        }
        let fan = self.plan.fan(depth);
        let parts = self.split(group, depth, fan, random, pivots_of)?;
        if fan == 1 || falls_apart(group, &parts) {
            return Ok(parts);
        }
        // Hubs, which are among the nearest pivots of nearly all points, keep the group together. Each is the single nearest pivot of
        // fewer points: so `fan` splits of fan-out 1, each by other pivots, replace the split.
        let mut parts = Vec::new();
        for again in 0..fan as u64 {
            parts.append(&mut self.split(group, depth, 1, &random.fork(REPEATED + again), pivots_of)?);
            // No pivots separate these points: all distances are about equal.
            if again == 0 && !falls_apart(group, &parts) {
                break;
            }
        }
        Ok(parts)
    }

    /// Random overlapping groups, for points that no pivots separate, such as points that are equally far from each other. The overlap
    /// keeps the graph connected.
    fn shuffled(&self, mut group: Vec<u32>, depth: usize, random: &Random) -> Result<(), BuildError> {
        for again in 0..self.plan.fan(depth).max(2) as u64 {
            random.fork(REPEATED + again).shuffle(&mut group);
            let parts = group.par_chunks(self.plan.leaf_max);
            // With a fan-out above one, a point is in as many random groups as parts of a split: it takes as many candidates from each.
            let section = self.control.section("random groups");
            section.for_each(parts, |part| self.leaf(part, depth + 1, false).map(|_| ()))?;
        }
        Ok(())
    }

    /// Compares all pairs of a group and keeps candidates; if `only_if_resolved`, only if distances are resolved. Returns whether any were
    /// kept.
    fn leaf(&self, group: &[u32], depth: usize, only_if_resolved: bool) -> Result<bool, BuildError> {
        thread_local! {
            static LEAF: std::cell::RefCell<Leaf> = std::cell::RefCell::default();
        }
        if group.len() < 2 {
            return Ok(true);
        }
        #[cfg(test)]
        if self.plan.defect == super::plan::Defect::LeavesDropped && group[0].is_multiple_of(10) {
            return Ok(true);
        }
        let mut unresolved = Vec::new();
        for (number, (space, found)) in self.lists().enumerate() {
            let done = LEAF.with_borrow_mut(|leaf| {
                let elements = group.iter().map(|&at| self.points[at as usize]);
                let resolved = leaf.compare(space, elements, self.plan.per_leaf(depth), self.control)?;
                if number == 0 && only_if_resolved && !resolved {
                    return Ok(false);
                }
                for (at, &point) in group.iter().enumerate() {
                    found.add(point as usize, leaf.found(space, at));
                }
                if number == 0 {
                    unresolved.extend(leaf.unresolved().map(|at| group[at]));
                }
                Ok(true)
            })?;
            if !done {
                return Ok(false);
            }
        }
        // Near-identical points among others are compared again by themselves, around their own mean.
        if unresolved.len() > 1 && unresolved.len() < group.len() && depth < MAX_DEPTH {
            self.partition(unresolved, depth + 1, &Random::new(0), &OnceLock::new())?;
        }
        Ok(true)
    }

    /// Each point goes to its nearest pivots; small groups are joined.
    fn split(
        &self,
        group: &[u32],
        depth: usize,
        fan: usize,
        random: &Random,
        pivots_of: &OnceLock<Vec<u32>>,
    ) -> Result<Vec<Vec<u32>>, BuildError> {
        let sample = random.clone().sample(self.plan.pivots(group.len(), depth), group.len());
        let mut pivots: Vec<u32> = sample.into_iter().map(|at| self.points[group[at] as usize]).collect();
        let mut nearest = self.assign(group, &pivots, fan)?;
        let rounds = if self.control.runs(Pass::HubRemoval) { HUB_ROUNDS } else { 0 };
        for _ in 0..rounds {
            let hubs = self.hubs(&nearest, pivots.len(), group.len())?;
            let others = pivots.len() - hubs.iter().filter(|&&hub| hub).count();
            if others == pivots.len() || others < fan + 2 {
                break;
            }
            let mut hubs = hubs.into_iter();
            pivots.retain(|_| !hubs.next().unwrap_or_default());
            nearest = self.assign(group, &pivots, fan)?;
        }
        if depth == 0 && pivots_of.get().is_none() {
            // At depth 0 the group is all points, in order.
            _ = pivots_of.set(self.to_elements(&nearest, &pivots)?);
        }
        // Points with the same nearest pivot become adjacent in each part: a leaf then compares near pairs first, whose distances limit
        // the later ones.
        let section = self.control.section("scatter");
        let pivots_of = |at: usize| &nearest[at * fan..][..fan];
        let by_nearest = Grouped::new(section, (group.len(), pivots.len()), |at| &pivots_of(at)[..1], |at| at as u32)?;
        let order = by_nearest.into_items();
        let of = |place: usize| order[place] as usize;
        let groups =
            Grouped::new(section, (order.len(), pivots.len()), |place| pivots_of(of(place)), |place| group[of(place)])?;
        let groups = section.map((0..pivots.len()).into_par_iter(), |pivot| Ok(groups.group(pivot).to_vec()))?;
        Ok(self.join_small(groups))
    }

    /// The `fan` nearest pivots of each point.
    fn assign(&self, group: &[u32], pivots: &[u32], fan: usize) -> Result<Vec<u32>, BuildError> {
        let pivots = Pivots::new(self.space, pivots.to_vec());
        let mut nearest = vec![0; group.len() * fan];
        let tasks = group.par_chunks(ASSIGN_AT_ONCE).zip(nearest.par_chunks_mut(ASSIGN_AT_ONCE * fan));
        self.control.section("assign").for_each_init(tasks, |scratch: &mut pivots::Scratch, (points, nearest)| {
            let elements: Vec<u32> = points.iter().map(|&at| self.points[at as usize]).collect();
            pivots.nearest(self.space, &elements, scratch, nearest);
            Ok(())
        })?;
        Ok(nearest)
    }

    /// For each pivot, whether it is a hub: central, near all points, so that it does not separate them.
    fn hubs(&self, nearest: &[u32], pivots: usize, points: usize) -> Result<Vec<bool>, BuildError> {
        let counts = self.control.section("hubs among pivots").map(nearest.par_chunks(1 << 16), |nearest| {
            let mut counts = vec![0; pivots];
            nearest.iter().filter(|&&pivot| pivot != u32::MAX).for_each(|&pivot| counts[pivot as usize] += 1);
            Ok(counts)
        })?;
        let limit = (HUB_FACTOR * nearest.len() / pivots).min(points / 2).max(self.plan.leaf_max);
        Ok((0..pivots).map(|pivot| counts.iter().map(|counts| counts[pivot]).sum::<usize>() > limit).collect())
    }

    /// Turns positions among the pivots into elements.
    fn to_elements(&self, nearest: &[u32], pivots: &[u32]) -> Result<Vec<u32>, BuildError> {
        let element = |at: usize| pivots.get(nearest[at] as usize).copied().unwrap_or(NO_NEIGHBOR);
        self.control.section("pivots' elements").fill(nearest.len(), element)
    }

    /// Joins groups too small for a leaf of their own, whose fixed costs would dominate.
    fn join_small(&self, groups: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        let (small, mut joined): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.len() < self.plan.leaf_min());
        let mut current: Vec<u32> = Vec::new();
        let mut add = |mut group: Vec<u32>| {
            // A point may be in several of the joined groups.
            group.sort_unstable();
            group.dedup();
            joined.push(group);
        };
        for group in small {
            current.extend(group);
            if current.len() >= self.plan.leaf_aim / 2 {
                add(std::mem::take(&mut current));
            }
        }
        add(current);
        joined.retain(|group| group.len() > 1);
        joined
    }
}

/// Whether every part is clearly smaller than the group.
fn falls_apart(group: &[u32], parts: &[Vec<u32>]) -> bool {
    !parts.is_empty() && parts.iter().all(|part| part.len() <= group.len() - group.len() / 8)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::OnceLock;

    use super::{Partition, falls_apart};
    use crate::Control;
    use crate::candidates::Candidates;
    use crate::partition::plan::{Compared, Plan};
    use crate::random::Random;
    use crate::testing::{euclidean, store};

    const POINTS: usize = 4000;

    /// A partition of points on a line, a step from each other.
    fn on_a_line(plan: &Plan, test: impl FnOnce(&Partition<'_>)) {
        let values: Vec<[f32; 1]> = (0..POINTS).map(|at| [at as f32]).collect();
        let store = store(&values);
        let points: Vec<u32> = (0..POINTS as u32).collect();
        let (space, control, found) = (euclidean::<1>(&store), Control::default(), Candidates::new(POINTS, plan.keep));
        let partition =
            Partition { space, points: &points, plan, found: &found, also: None, control: &control, counted: false };
        test(&partition);
    }

    fn plan() -> Plan {
        Plan::new(64, 32, Compared::ByTiles, POINTS)
    }

    #[test]
    fn each_point_is_in_the_groups_of_its_nearest_pivots() {
        for fan in [1, 2] {
            let mut plan = plan();
            (plan.fans, plan.leaf_aim) = ([fan, 1], 6);
            on_a_line(&plan, |partition| {
                let pivots_of = OnceLock::new();
                let groups = partition.split(partition.points, 0, fan, &Random::new(3), &pivots_of).unwrap();
                let mut times = vec![0; POINTS];
                groups.iter().flatten().for_each(|&at| times[at as usize] += 1);
                assert!(times.iter().all(|&times| times == fan), "each point is in {fan}");
                let nearest = pivots_of.get().unwrap();
                let pivots: BTreeSet<u32> = nearest.iter().copied().collect();
                assert_eq!(pivots.len(), plan.pivots(POINTS, 0));
                for (at, own) in (0u32..).zip(nearest.chunks_exact(fan)) {
                    let mut far: Vec<u32> = pivots.iter().map(|pivot| pivot.abs_diff(at)).collect();
                    far.sort_unstable();
                    let own: Vec<u32> = own.iter().map(|pivot| pivot.abs_diff(at)).collect();
                    assert_eq!(own, far[..fan], "{at}");
                }
                for group in &groups {
                    let together = |&pivot: &&u32| {
                        let has = |at: u32| nearest[at as usize * fan..][..fan].contains(pivot);
                        group.iter().all(|&at| has(at))
                    };
                    assert!(pivots.iter().any(|pivot| together(&pivot)), "a group has one pivot");
                }
            });
        }
    }

    #[test]
    fn a_hub_has_more_than_sixteen_times_its_share() {
        let mut plan = plan();
        plan.leaf_max = 10;
        on_a_line(&plan, |partition| {
            // The fair share of each of 100 pivots is 40 points of 4,000.
            let mut nearest = vec![0; 640];
            nearest.extend([1; 641]);
            nearest.resize(POINTS, u32::MAX);
            let hubs = partition.hubs(&nearest, 100, POINTS).unwrap();
            assert_eq!(hubs.iter().position(|&hub| hub), Some(1));
            assert_eq!(hubs.iter().filter(|&&hub| hub).count(), 1);
        });
    }

    #[test]
    fn many_points_of_a_pivot_are_ordered_by_their_further_pivots() {
        let mut plan = plan();
        plan.fans = [3, 1];
        on_a_line(&plan, |partition| {
            // The first hundred points fit into a cell.
            let nearest = |at: u32| [if at < 100 { 7 } else { 5 }, 10 + at % 2, 20 + at % 3];
            let pivots_of: Vec<u32> = (0..POINTS as u32).flat_map(nearest).collect();
            let order = partition.by_pivot(&pivots_of).unwrap();
            let of_pivot = |pivot: u32| order.iter().copied().filter(move |&at| nearest(at)[0] == pivot);
            assert!(of_pivot(7).eq(0..100), "in the order of the rows");
            assert!(of_pivot(5).is_sorted_by_key(|at| (nearest(at), at)));
            assert_eq!((order.len(), of_pivot(5).count()), (POINTS, POINTS - 100));
            assert!(order.chunk_by(|&a, &b| nearest(a)[0] == nearest(b)[0]).count() == 2, "adjacent");
        });
    }

    #[test]
    fn small_groups_are_joined() {
        let plan = plan();
        assert_eq!((plan.leaf_min(), plan.leaf_aim), (133, 800));
        on_a_line(&plan, |partition| {
            let group = |range: std::ops::Range<u32>| range.collect::<Vec<_>>();
            // The second to the fifth have 520 points together, 490 of them distinct. One point remains.
            let groups =
                [0..133, 200..330, 300..430, 430..560, 560..690, 700..701].into_iter().map(group).collect::<Vec<_>>();
            assert_eq!(partition.join_small(groups), [group(0..133), group(200..690)]);
        });
    }

    #[test]
    fn a_group_falls_apart_if_every_part_is_an_eighth_smaller() {
        let part = |len: usize| vec![0; len];
        assert!(falls_apart(&part(16), &[part(14), part(14)]));
        assert!(!falls_apart(&part(16), &[part(1), part(15)]));
        assert!(!falls_apart(&part(16), &[]));
    }
}
