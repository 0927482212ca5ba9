//! The choice of neighbors.

use distance::{COLS, ROWS, Tile};

use crate::candidates::{self, Candidate};
use crate::group::Group;
use crate::space::{Products, Space};

/// By which distances neighbors are chosen, how many, and how much nearer to one of them than to the element another must be to be
/// superfluous.
#[derive(Clone, Copy)]
pub(crate) struct Rule<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) wanted: usize,
    /// A ratio of squared distances: first this much, then, where there is room left, this much.
    pub(crate) slacks: [f32; 2],
}

/// What measured best with few candidates, and on hard sets.
pub(crate) const SLACKS: [f32; 2] = [1.1, 1.25];
/// And with many.
pub(crate) const SLACKS_OF_MANY: [f32; 2] = [1.05, 1.2];

/// With more candidates than these it costs less to compare them with those chosen only.
const MOST_COMPARED: usize = 192;
/// Limits that every distance is below.
const EVERYTHING: (&[f32; ROWS], &[f32; COLS]) = (&[f32::INFINITY; ROWS], &[f32::INFINITY; COLS]);

/// Chooses neighbors; keeps its memory from one element to the next.
#[derive(Default)]
pub(crate) struct Selector {
    elements: Vec<u32>,
    group: Group,
    center: Vec<f32>,
    tile: Tile,
    /// Distances between candidates: a row for each, at and right of the diagonal.
    between: Vec<f32>,
    /// For each candidate, how near the nearest neighbor chosen so far is.
    closest: Vec<f32>,
    taken: Vec<bool>,
}

impl Selector {
    /// The diversity rule with refill (algorithm 4 of the HNSW paper with `keepPrunedConnections`, and the slack of DiskANN's
    /// RobustPrune): of the candidates, nearest first, those that are nearer to the element than to any neighbor chosen before;
    /// what is then left of the list gets the nearest of the rest.
    ///
    /// `candidates` are in ascending order of distance to `element`; `list` is emptied first. Returns how many the rule chose: they
    /// come first.
    fn choose_by(&mut self, rule: Rule<'_>, element: u32, candidates: &[Candidate], list: &mut Vec<u32>) -> usize {
        list.clear();
        if candidates.len() <= rule.wanted {
            list.extend(candidates.iter().map(|&(_, candidate)| candidate));
            return list.len();
        }
        self.taken.clear();
        self.taken.resize(candidates.len(), false);
        match rule.space.measure.products {
            Some(products) if candidates.len() <= MOST_COMPARED => {
                self.by_products(rule, products, element, candidates, list);
            }
            _ => self.one_by_one(rule, element, candidates, list),
        }
        let chosen = list.len();
        let rest = candidates.iter().zip(&self.taken).filter(|&(_, taken)| !taken);
        list.extend(rest.map(|(&(_, candidate), _)| candidate).take(rule.wanted - chosen));
        chosen
    }

    /// The neighbors of an element from `candidates`, which are in ascending order of distance.
    ///
    /// Under inner product those that are nearest to everybody are the longest vectors. They are where queries end, but the way
    /// from one to another is by Euclidean distance: so a quarter of the neighbors is chosen by that.
    pub(crate) fn choose(
        &mut self,
        rule: Rule<'_>,
        element: u32,
        candidates: &[Candidate],
        list: &mut Vec<u32>,
    ) -> usize {
        let Some(euclidean) = rule.space.euclidean().filter(|_| candidates.len() > rule.wanted) else {
            return self.choose_by(rule, element, candidates, list);
        };
        let by_metric = self.choose_by(Rule { wanted: rule.wanted * 3 / 4, ..rule }, element, candidates, list);
        let others = candidates.iter().filter(|&(_, other)| !list.contains(other));
        let mut others: Vec<Candidate> =
            others.map(|&(_, other)| (euclidean.distance(element, other), other)).collect();
        others.sort_unstable_by(candidates::order);
        let mut rest = list.split_off(by_metric);
        let mut more = Vec::new();
        let others_rule = Rule { space: euclidean, wanted: rule.wanted - by_metric - rest.len(), ..rule };
        let chosen = self.choose_by(others_rule, element, &others, &mut more);
        list.extend(&more[..chosen]);
        rest.extend(&more[chosen..]);
        list.append(&mut rest);
        by_metric + chosen
    }

    fn one_by_one(&mut self, rule: Rule<'_>, element: u32, candidates: &[Candidate], list: &mut Vec<u32>) {
        let space = rule.space;
        for slack in rule.slacks {
            for (&(distance, candidate), taken) in candidates.iter().zip(&mut self.taken) {
                if list.len() == rule.wanted {
                    return;
                }
                let limit = space.nearer(element, candidate, distance, slack);
                if !*taken && list.iter().all(|&chosen| space.distance(candidate, chosen) > limit) {
                    *taken = true;
                    list.push(candidate);
                }
            }
        }
    }

    /// The same with all distances between candidates from tiles: more of them, but each costs much less.
    fn by_products(
        &mut self,
        rule: Rule<'_>,
        products: Products,
        element: u32,
        candidates: &[Candidate],
        list: &mut Vec<u32>,
    ) {
        let space = rule.space;
        self.compare(space, products, element, candidates);
        self.closest.clear();
        self.closest.resize(candidates.len(), f32::INFINITY);
        for slack in rule.slacks {
            for (at, &(distance, candidate)) in candidates.iter().enumerate() {
                if list.len() == rule.wanted {
                    return;
                }
                // A tie makes superfluous, too.
                if !self.taken[at] && self.closest[at] > space.nearer(element, candidate, distance, slack) {
                    self.take(at);
                    list.push(candidate);
                }
            }
        }
    }

    fn take(&mut self, chosen: usize) {
        self.taken[chosen] = true;
        let width = self.width();
        let (before, after) = self.closest.split_at_mut(chosen);
        for (at, closest) in before.iter_mut().enumerate() {
            *closest = closest.min(self.between[at * width + chosen]);
        }
        for (closest, &distance) in after.iter_mut().zip(&self.between[chosen * width + chosen..]) {
            *closest = closest.min(distance);
        }
    }

    /// Distances in a row: as many as there are columns of tiles.
    fn width(&self) -> usize {
        self.group.padded()
    }

    fn compare(&mut self, space: Space<'_>, products: Products, element: u32, candidates: &[Candidate]) {
        self.elements.clear();
        self.elements.extend(candidates.iter().map(|&(_, candidate)| candidate));
        let (distance, middle) = candidates[candidates.len() / 2];
        match space.codes.filter(|codes| codes.can_tell(element, space.squared(element, middle, distance))) {
            Some(codes) => self.group.pack_codes(codes, &self.elements),
            None => {
                self.center.resize(products.dims, 0.0);
                distance::decode(products.elements, space.value(element), &mut self.center);
                self.group.pack(space, products, &self.elements, Some(&self.center));
            }
        }
        let width = self.width();
        self.between.resize(width * self.group.blocks() * ROWS, 0.0);
        for row_block in 0..self.group.blocks() {
            let first_row = row_block * ROWS;
            for col_pair in row_block / 2..self.group.blocks() / 2 {
                let first_col = col_pair * COLS;
                self.group.tile(row_block, &self.group, col_pair, products, EVERYTHING, &mut self.tile);
                for (row, distances) in self.tile.distances.iter().enumerate() {
                    let start = (first_row + row) * width + first_col;
                    self.between[start..start + COLS].copy_from_slice(distances);
                }
            }
        }
    }
}
