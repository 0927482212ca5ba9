//! The choice of neighbors.

use distance::{COLS, ROWS, Tile};

use crate::candidate::Candidate;
use crate::group::Group;
use crate::space::{Products, Space};

/// By which distances neighbors are chosen, and how many.
#[derive(Clone, Copy)]
pub(crate) struct Rule<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) wanted: usize,
}

/// How much nearer to one of the neighbors than to the element another must be to be superfluous, as a ratio of squared distances:
/// first this much, then, where there is room left, this much. Less is better for sets of even density, more for those with hubs.
const SLACKS: [f32; 2] = [1.05, 1.2];

/// With more candidates than these it costs less to compare them with those chosen only.
const MOST_COMPARED: usize = 192;
/// Limits that every distance is below.
const EVERYTHING: (&[f32; ROWS], &[f32; COLS]) = (&[f32::INFINITY; ROWS], &[f32::INFINITY; COLS]);

/// Chooses neighbors; keeps its memory from one element to the next.
#[derive(Default)]
pub(crate) struct Selector {
    /// The candidates, and last the element itself.
    members: Vec<u32>,
    /// How far each candidate is from the element.
    distances: Vec<f32>,
    /// Positions of candidates that may be chosen.
    ranked: Vec<Candidate>,
    taken: Vec<bool>,
    group: Group,
    center: Vec<f32>,
    tile: Tile,
    /// Distances between members: a row for each, at and right of the diagonal.
    between: Vec<f32>,
    /// For each candidate, how near the nearest neighbor chosen so far is.
    closest: Vec<f32>,
    /// For each candidate, how near that may be.
    limits: Vec<f32>,
}

/// What is known of the distances between candidates.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    /// All, from codes.
    ByCodes,
    /// All, from the values.
    ByValues,
    Nothing,
}

impl Selector {
    /// The neighbors of an element from distinct candidates. Where the space has codes, their distances are made of those, or
    /// measured if codes are too coarse; else they are known.
    ///
    /// Under inner product those that are nearest to everybody are the longest vectors. They are where queries end, but the way
    /// from one to another is by Euclidean distance: so a quarter of the neighbors is chosen by that.
    ///
    /// `list` is emptied first. Returns how many the diversity rule chose: they come first.
    pub(crate) fn choose(
        &mut self,
        rule: Rule<'_>,
        element: u32,
        candidates: &[Candidate],
        list: &mut Vec<u32>,
    ) -> usize {
        list.clear();
        self.members.clear();
        self.members.extend(candidates.iter().map(|candidate| candidate.element()));
        self.distances.clear();
        self.distances.extend(candidates.iter().map(|candidate| candidate.distance()));
        let known = self.compare(rule, element);
        self.rank(list);
        match rule.space.euclidean().filter(|_| candidates.len() > rule.wanted) {
            Some(euclidean) => self.pick_by_both(rule, euclidean, known, element, list),
            None => self.pick(rule, known, element, list),
        }
    }

    fn pick_by_both(
        &mut self,
        rule: Rule<'_>,
        euclidean: Space<'_>,
        known: Known,
        element: u32,
        list: &mut Vec<u32>,
    ) -> usize {
        let by_metric = self.pick(Rule { wanted: rule.wanted * 3 / 4, ..rule }, known, element, list);
        let others_rule = Rule { space: euclidean, wanted: rule.wanted - list.len() };
        let known = if known == Known::ByCodes {
            self.turn_euclidean(rule.space, element);
            known
        } else {
            self.members.retain(|&other| other != element && !list.contains(&other));
            self.distances.clear();
            self.distances.extend(self.members.iter().map(|&other| euclidean.candidate(element, other).distance()));
            self.compare(others_rule, element)
        };
        self.rank(list);
        let mut rest = list.split_off(by_metric);
        let mut others = Vec::new();
        let by_distance = self.pick(others_rule, known, element, &mut others);
        rest.extend(others.drain(by_distance..));
        list.append(&mut others);
        list.append(&mut rest);
        by_metric + by_distance
    }

    /// Candidates that are not in a list yet may be chosen, nearest first.
    fn rank(&mut self, list: &[u32]) {
        let candidates = (0u32..).zip(self.members.iter().zip(&self.distances));
        let others = candidates.filter(|(_, (other, _))| !list.contains(other));
        self.ranked.clear();
        self.ranked.extend(others.map(|(at, (_, &distance))| Candidate::new(distance, at)));
        self.ranked.sort_unstable();
    }

    /// The diversity rule with refill (algorithm 4 of the HNSW paper with `keepPrunedConnections`, and the slack of DiskANN's
    /// RobustPrune): of the candidates, nearest first, those that are nearer to the element than to any neighbor chosen before;
    /// what is then left of the list gets the nearest of the rest.
    fn pick(&mut self, rule: Rule<'_>, known: Known, element: u32, list: &mut Vec<u32>) -> usize {
        if self.ranked.len() <= rule.wanted {
            list.extend(self.ranked.iter().map(|at| self.members[at.element() as usize]));
            return list.len();
        }
        self.taken.clear();
        self.taken.resize(self.distances.len(), false);
        match known {
            Known::Nothing => self.one_by_one(rule, element, list),
            _ => self.by_distances(rule, element, list),
        }
        let chosen = list.len();
        let rest = self.ranked.iter().map(|at| at.element() as usize).filter(|&at| !self.taken[at]);
        list.extend(rest.map(|at| self.members[at]).take(rule.wanted - chosen));
        chosen
    }

    fn one_by_one(&mut self, rule: Rule<'_>, element: u32, list: &mut Vec<u32>) {
        let space = rule.space;
        for slack in SLACKS {
            for at in &self.ranked {
                if list.len() == rule.wanted {
                    return;
                }
                let (candidate, taken) = (self.members[at.element() as usize], &mut self.taken[at.element() as usize]);
                let limit = space.nearer(element, candidate, at.distance(), slack);
                if !*taken && list.iter().all(|&chosen| space.distance(candidate, chosen) > limit) {
                    *taken = true;
                    list.push(candidate);
                }
            }
        }
    }

    /// The same with all distances between candidates from tiles: more of them, but each costs much less.
    fn by_distances(&mut self, rule: Rule<'_>, element: u32, list: &mut Vec<u32>) {
        self.closest.clear();
        self.closest.resize(self.distances.len(), f32::INFINITY);
        for slack in SLACKS {
            self.limits.clear();
            let candidates = self.members.iter().zip(&self.distances);
            self.limits
                .extend(candidates.map(|(&other, &distance)| rule.space.nearer(element, other, distance, slack)));
            for at in 0..self.ranked.len() {
                if list.len() == rule.wanted {
                    return;
                }
                let at = self.ranked[at].element() as usize;
                // A tie makes superfluous, too.
                if !self.taken[at] && self.closest[at] > self.limits[at] {
                    self.take(at);
                    list.push(self.members[at]);
                }
            }
        }
    }

    fn take(&mut self, chosen: usize) {
        self.taken[chosen] = true;
        let width = self.group.padded();
        let (before, after) = self.closest.split_at_mut(chosen);
        let above = self.between[chosen..].iter().step_by(width);
        before.iter_mut().zip(above).for_each(|(closest, &distance)| *closest = closest.min(distance));
        let right = &self.between[chosen * width + chosen..];
        after.iter_mut().zip(right).for_each(|(closest, &distance)| *closest = closest.min(distance));
    }

    /// Finds the distances between candidates, where the rule will need them and tiles can give them, and those to the element if
    /// they are not known.
    fn compare(&mut self, rule: Rule<'_>, element: u32) -> Known {
        let (space, count) = (rule.space, self.members.len());
        let compared = (rule.wanted + 1..=MOST_COMPARED).contains(&count);
        let products = space.measure.products.filter(|_| compared);
        self.members.push(element);
        if let Some(codes) = space.codes {
            if let Some(products) = products {
                self.group.pack_codes(codes, &self.members);
                self.multiply(products);
                let to_element = self.between[count..].iter().step_by(self.group.padded());
                self.distances.iter_mut().zip(to_element).for_each(|(distance, &known)| *distance = known);
                if codes.can_tell(element, self.middle(space, element)) {
                    return Known::ByCodes;
                }
            }
            let measured = self.members.iter().map(|&other| space.distance(element, other));
            self.distances.iter_mut().zip(measured).for_each(|(distance, measured)| *distance = measured);
        }
        let Some(products) = products else { return Known::Nothing };
        self.center.resize(products.dims, 0.0);
        distance::decode(products.elements, space.value(element), &mut self.center);
        self.group.pack(space, products, &self.members, Some(&self.center));
        self.multiply(products);
        Known::ByValues
    }

    /// The square of the distance of the candidate in the middle.
    fn middle(&mut self, space: Space<'_>, element: u32) -> f32 {
        self.closest.clear();
        let candidates = self.members.iter().zip(&self.distances);
        self.closest.extend(candidates.map(|(&other, &distance)| space.squared(element, other, distance)));
        let middle = self.closest.len() / 2;
        *self.closest.select_nth_unstable_by(middle, f32::total_cmp).1
    }

    fn multiply(&mut self, products: Products) {
        let width = self.group.padded();
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

    /// Makes squared Euclidean distances of those under inner product: without the lifts, which were one more dimension.
    fn turn_euclidean(&mut self, space: Space<'_>, element: u32) {
        let of = |&element: &u32| {
            (space.squared_length(element).unwrap_or_default(), space.lift(element).unwrap_or_default())
        };
        let turned = |a: (f32, f32), b: (f32, f32), distance| a.0 + b.0 + 2.0 * distance - (a.1 - b.1) * (a.1 - b.1);
        let width = self.group.padded();
        let ends: Vec<(f32, f32)> = self.members.iter().map(of).collect();
        for (at, distance) in self.distances.iter_mut().enumerate() {
            *distance = turned(ends[at], of(&element), *distance);
            let row = self.between[at * width..].iter_mut().zip(&ends).skip(at);
            row.for_each(|(distance, &end)| *distance = turned(ends[at], end, *distance));
        }
    }
}
