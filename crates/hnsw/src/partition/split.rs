//! Splits points into overlapping groups of neighbors.

use std::sync::OnceLock;

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use super::leaf::Leaf;
use super::pivots::Pivots;
use super::plan::Plan;
use super::refine;
use crate::candidates::Candidates;
use crate::random::Random;
use crate::select::Far;
use crate::space::Space;
use crate::{BuildError, Control, Pass};

/// Depth of the last split. Larger groups become leaves as they are: more splits would not separate their points.
const MAX_DEPTH: usize = 8;
/// First branch of the random numbers for repeated splits; the parts of a group use the branches below.
const REPEATED: u64 = 1 << 32;
/// How often hubs are removed from the pivots.
const HUB_ROUNDS: usize = 3;
/// A pivot with more than this many times its fair share of points is a hub.
const HUB_FACTOR: usize = 16;
/// Points per pivot where all points fit into one leaf.
const FEW: usize = 64;
/// A large group is scattered by this many tasks at most, each with at least `LEAST_SCATTERED` points.
const SCATTERED: usize = 32;
const LEAST_SCATTERED: usize = 1 << 14;
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
    /// Runs on the threads of the pool it is called from. Returns all points, ordered by their nearest
    /// pivot, and the nearest pivots of each.
    pub(crate) fn run(&self, random: &Random) -> Result<(Vec<u32>, Far), BuildError> {
        let mut all: Vec<u32> = (0..self.points.len() as u32).collect();
        let fan = self.plan.fan(0);
        let pivots_of = OnceLock::new();
        if all.len() <= self.plan.leaf_max && all.len() > 2 * FEW {
            let pivots = random.fork(REPEATED).sample((all.len() / FEW).max(fan + 2), all.len());
            let pivots = pivots.into_iter().map(|at| self.points[at]).collect::<Vec<_>>();
            let nearest = self.assign(&all, &pivots, fan)?;
            pivots_of.get_or_init(|| named(&nearest, &pivots));
        }
        self.partition(all.clone(), 0, random, &pivots_of)?;
        let pivots_of = pivots_of.into_inner().unwrap_or_default();
        if !pivots_of.is_empty() {
            all.par_sort_by_key(|&at| pivots_of[at as usize * fan]);
        }
        let looks_again = all.len() > self.plan.leaf_max && Pass::SecondLook.runs(self.plan.left_out);
        for (space, found) in self.lists() {
            let products = space.measure.products.filter(|_| space.codes.is_some() && looks_again);
            let Some(products) = products else { continue };
            let cells = all.chunk_by(|&a, &b| pivots_of.get(a as usize * fan) == pivots_of.get(b as usize * fan));
            let cells: Vec<&[u32]> = cells.flat_map(refine::even_cells).collect();
            #[cfg(test)]
            let cells: Vec<&[u32]> = cells.into_iter().filter(|cell| !self.is_lost(cell[0], &pivots_of)).collect();
            let known = refine::Known::count(self.points, found);
            cells.into_par_iter().try_for_each_init(refine::Scratch::default, |scratch, cell| {
                self.control.check()?;
                refine::look_again(space, products, self.points, cell, (found, &known), scratch);
                Ok(())
            })?;
        }
        let far = self.plan.far();
        let nearest = pivots_of.par_chunks_exact(fan).flat_map_iter(|nearest| &nearest[..far]).copied().collect();
        Ok((all, Far::new(far, nearest)))
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

    fn partition(
        &self,
        group: Vec<u32>,
        depth: usize,
        random: &Random,
        pivots_of: &OnceLock<Vec<u32>>,
    ) -> Result<(), BuildError> {
        self.control.check()?;
        // A group of clusters far from each other is split rather than compared: its distances are below the quantisation error.
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
        groups.into_par_iter().enumerate().try_for_each(|(at, part)| {
            let len = part.len() as u64;
            self.partition(part, depth + 1, &random.fork(at as u64 + 1), pivots_of)?;
            if self.counted && depth == 0 {
                self.control.progress().add(len / fan);
            }
            Ok(())
        })
    }

    /// Overlapping parts of a group; none at the greatest depth.
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
        // A pivot that is among the nearest of nearly all points is the single nearest of fewer. So the group is split several times by different
        // pivots, each point going to one part of each split.
        let mut parts = Vec::new();
        for again in 0..fan as u64 {
            parts.append(&mut self.split(group, depth, 1, &random.fork(REPEATED + again), pivots_of)?);
        }
        Ok(parts)
    }

    /// Random overlapping groups, for points that no pivots separate, such as points that are equally far from each other. The overlap keeps the
    /// graph connected.
    fn shuffled(&self, mut group: Vec<u32>, depth: usize, random: &Random) -> Result<(), BuildError> {
        for again in 0..self.plan.fan(depth).max(2) as u64 {
            let mut random = random.fork(REPEATED + again);
            for last in (1..group.len()).rev() {
                group.swap(last, random.below(last + 1));
            }
            group.par_chunks(self.plan.leaf_max).try_for_each(|part| {
                self.control.check()?;
                self.leaf(part, depth, false).map(|_| ())
            })?;
        }
        Ok(())
    }

    /// Compares all pairs of a group and keeps candidates. With `must`, a group whose distances are not resolved gets none. Returns whether
    /// candidates were kept.
    fn leaf(&self, group: &[u32], depth: usize, must: bool) -> Result<bool, BuildError> {
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
                if number == 0 && must && !resolved {
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

    /// Each point goes to its nearest pivots; small groups are put together.
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
        let rounds = if Pass::HubRemoval.runs(self.plan.left_out) { HUB_ROUNDS } else { 0 };
        for _ in 0..rounds {
            let hubs = self.hubs(&nearest, pivots.len(), group.len());
            let others = pivots.len() - hubs.iter().filter(|&&hub| hub).count();
            if others == pivots.len() || others < fan + 2 {
                break;
            }
            let mut hubs = hubs.into_iter();
            pivots.retain(|_| !hubs.next().unwrap_or_default());
            nearest = self.assign(group, &pivots, fan)?;
        }
        if depth == 0 {
            // At depth 0 the group is all points, in order.
            pivots_of.get_or_init(|| named(&nearest, &pivots));
        }
        // Points with the same nearest pivot become adjacent in each part: near pairs are compared first, and limit what follows.
        let mut order: Vec<u32> = (0..group.len() as u32).collect();
        order.par_sort_by_key(|&at| nearest[at as usize * fan]);
        // Each task scatters a range of the order into its own slice of every group.
        let scatter = |order: &[u32]| {
            let mut groups = vec![Vec::new(); pivots.len()];
            for &at in order {
                let nearest = &nearest[at as usize * fan..][..fan];
                for &pivot in nearest.iter().filter(|&&pivot| pivot != u32::MAX) {
                    groups[pivot as usize].push(group[at as usize]);
                }
            }
            groups
        };
        let len = order.len().div_ceil(SCATTERED).max(LEAST_SCATTERED);
        let parts: Vec<Vec<Vec<u32>>> = order.par_chunks(len).map(scatter).collect();
        let join = |pivot: usize| parts.iter().flat_map(|groups| &groups[pivot]).copied().collect();
        Ok(self.join_small((0..pivots.len()).into_par_iter().map(join).collect()))
    }

    /// The `fan` nearest pivots of each point.
    fn assign(&self, group: &[u32], pivots: &[u32], fan: usize) -> Result<Vec<u32>, BuildError> {
        let pivots = Pivots::new(self.space, pivots.to_vec());
        let assign = |points: &[u32]| {
            self.control.check()?;
            let elements: Vec<u32> = points.iter().map(|&at| self.points[at as usize]).collect();
            Ok(pivots.nearest(self.space, &elements, fan))
        };
        let chunks: Vec<Vec<u32>> = group.par_chunks(ASSIGN_AT_ONCE).map(assign).collect::<Result<_, BuildError>>()?;
        Ok(chunks.concat())
    }

    /// Hubs: central pivots that are near all points, and so do not separate them.
    fn hubs(&self, nearest: &[u32], pivots: usize, points: usize) -> Vec<bool> {
        let count = |mut sizes: Vec<usize>, pivot: &u32| {
            if *pivot != u32::MAX {
                sizes[*pivot as usize] += 1;
            }
            sizes
        };
        let add = |a: Vec<usize>, b: Vec<usize>| a.into_iter().zip(b).map(|(a, b)| a + b).collect();
        let counts = nearest.par_iter().with_min_len(1 << 16).fold(|| vec![0; pivots], count);
        let sizes: Vec<usize> = counts.reduce(|| vec![0; pivots], add);
        let limit = (HUB_FACTOR * nearest.len() / pivots).min(points / 2).max(self.plan.leaf_max);
        sizes.into_iter().map(|size| size > limit).collect()
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

/// Turns positions among the pivots into elements.
fn named(nearest: &[u32], pivots: &[u32]) -> Vec<u32> {
    nearest.par_iter().map(|&pivot| pivots.get(pivot as usize).copied().unwrap_or(NO_NEIGHBOR)).collect()
}

/// Whether every part is clearly smaller than the group.
fn falls_apart(group: &[u32], parts: &[Vec<u32>]) -> bool {
    !parts.is_empty() && parts.iter().all(|part| part.len() <= group.len() - group.len() / 8)
}
