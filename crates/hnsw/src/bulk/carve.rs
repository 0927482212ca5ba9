//! Splits points into overlapping groups of neighbors.

use std::sync::OnceLock;

use distance::{COLS, ROWS, Tile, TileInput};
use rayon::prelude::*;

use super::leaf::{self, Scratch};
use super::nearest::Nearest;
use super::plan::{LEAF_AIM, LEAF_MAX, LEAF_MIN, MAX_LEADERS, Plan};
use super::random::Random;
use crate::candidates::Candidates;
use crate::group::{self, Group};
use crate::space::{Products, Space};
use crate::{BuildError, Control};

/// Splits after which leaves are made without looking: the points cannot be told apart.
const MAX_DEPTH: usize = 8;
/// Points assigned to leaders at a time.
const ASSIGN_AT_ONCE: usize = 512;

/// Finds candidates for all points of one layer.
pub(crate) struct Carver<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) products: Products,
    pub(crate) points: &'a [u32],
    pub(crate) plan: &'a Plan,
    pub(crate) found: &'a Candidates,
    pub(crate) control: &'a Control,
    /// Whether progress is counted: points of the first split.
    pub(crate) counted: bool,
}

impl Carver<'_> {
    /// Runs on the threads of the pool it is called from. Returns all points, those of a group next to each other.
    pub(crate) fn run(&self, random: &Random) -> Result<Vec<u32>, BuildError> {
        let mut all: Vec<u32> = (0..self.points.len() as u32).collect();
        let homes = OnceLock::new();
        self.carve(all.clone(), 0, random, &homes)?;
        if let Some(homes) = homes.get() {
            all.sort_by_key(|&at| homes[at as usize]);
        }
        Ok(all)
    }

    fn carve(
        &self,
        group: Vec<u32>,
        depth: usize,
        random: &Random,
        homes: &OnceLock<Vec<u32>>,
    ) -> Result<(), BuildError> {
        self.control.check()?;
        if group.len() <= LEAF_MAX {
            self.leaf(&group, depth);
            return Ok(());
        }
        let groups = if depth < MAX_DEPTH { self.split(&group, depth, random, homes)? } else { Vec::new() };
        // Points that do not fall apart: equally far from everything, say.
        if groups.is_empty() || groups.iter().any(|part| part.len() > group.len() - group.len() / 8) {
            return group.par_chunks(LEAF_MAX).try_for_each(|part| {
                self.control.check()?;
                self.leaf(part, depth);
                Ok(())
            });
        }
        drop(group);
        let fan = self.plan.fan(0) as u64;
        groups.into_par_iter().enumerate().try_for_each(|(at, part)| {
            let len = part.len() as u64;
            self.carve(part, depth + 1, &random.fork(at as u64 + 1), homes)?;
            if self.counted && depth == 0 {
                self.control.progress().add(len / fan);
            }
            Ok(())
        })
    }

    fn leaf(&self, group: &[u32], depth: usize) {
        thread_local! {
            static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
        }
        let k = self.plan.per_leaf(depth);
        SCRATCH.with_borrow_mut(|scratch| {
            leaf::all_pairs(self.space, self.products, self.points, group, k, self.found, scratch);
        });
    }

    /// Each point goes to its nearest leaders; small groups are put together.
    fn split(
        &self,
        group: &[u32],
        depth: usize,
        random: &Random,
        homes: &OnceLock<Vec<u32>>,
    ) -> Result<Vec<Vec<u32>>, BuildError> {
        let fan = self.plan.fan(depth);
        let leaders = (group.len() * fan).div_ceil(LEAF_AIM).clamp(fan + 2, MAX_LEADERS);
        let sample = random.clone().sample(leaders, group.len());
        let leaders: Vec<u32> = sample.into_iter().map(|at| self.points[group[at] as usize]).collect();
        let center = group::center(self.space, self.products, &leaders);
        let mut packed = Group::default();
        packed.pack_leaders(self.space, self.products, &leaders, center.as_deref());

        let assign = |points: &[u32]| {
            self.control.check()?;
            Ok(self.assign(points, &packed, leaders.len(), center.as_deref(), fan))
        };
        let nearest: Vec<Vec<u32>> = group.par_chunks(ASSIGN_AT_ONCE).map(assign).collect::<Result<_, BuildError>>()?;
        if depth == 0 {
            // The first group of all has every point, in order; its nearest leader is the first of each.
            homes.get_or_init(|| nearest.iter().flat_map(|chunk| chunk.iter().copied().step_by(fan)).collect());
        }
        let mut groups = vec![Vec::new(); leaders.len()];
        for (points, nearest) in group.chunks(ASSIGN_AT_ONCE).zip(nearest) {
            for (at, leader) in nearest.into_iter().enumerate() {
                if leader != u32::MAX {
                    groups[leader as usize].push(points[at / fan]);
                }
            }
        }
        Ok(join_small(groups))
    }

    /// The `fan` nearest leaders of each point.
    fn assign(&self, points: &[u32], leaders: &Group, count: usize, center: Option<&[f32]>, fan: usize) -> Vec<u32> {
        let elements: Vec<u32> = points.iter().map(|&at| self.points[at as usize]).collect();
        let (mut group, mut nearest, mut tile) = (Group::default(), Nearest::default(), Tile::new());
        group.pack(self.space, self.products, &elements, center);
        nearest.reset(points.len(), group.terms.len(), fan.min(count));
        let nothing = [f32::NEG_INFINITY; COLS];
        for row_block in 0..group.panel.blocks() {
            let first_row = row_block * ROWS;
            for col_pair in 0..leaders.panel.blocks() / 2 {
                let first_col = col_pair * COLS;
                let input = TileInput {
                    scale: self.products.scale(),
                    row_terms: group.terms(first_row),
                    col_terms: leaders.terms(first_col),
                    row_limits: nearest.limits(first_row),
                    col_limits: &nothing,
                };
                let cols = [leaders.panel.block(2 * col_pair), leaders.panel.block(2 * col_pair + 1)];
                (self.products.tile)(group.panel.block(row_block), cols, &input, &mut tile);
                for row in 0..ROWS {
                    let mut hits = tile.hits[row];
                    while hits != 0 {
                        let col = hits.trailing_zeros() as usize;
                        hits &= hits - 1;
                        nearest.offer(first_row + row, tile.distances[row][col], (first_col + col) as u32);
                    }
                }
            }
        }
        let mut assigned = vec![u32::MAX; points.len() * fan];
        for (at, assigned) in assigned.chunks_exact_mut(fan).enumerate() {
            for (slot, (_, leader)) in assigned.iter_mut().zip(nearest.of(at)) {
                *slot = leader;
            }
        }
        assigned
    }
}

/// A leaf costs something however few points it has.
fn join_small(groups: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let (small, mut joined): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| group.len() < LEAF_MIN);
    let mut current: Vec<u32> = Vec::new();
    for group in small {
        current.extend(group);
        if current.len() >= LEAF_AIM / 2 {
            joined.push(std::mem::take(&mut current));
        }
    }
    joined.push(current);
    for group in &mut joined {
        group.sort_unstable();
        group.dedup();
    }
    joined.retain(|group| group.len() > 1);
    joined
}
