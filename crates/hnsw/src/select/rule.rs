//! The diversity rule, by which an element chooses its neighbors.

use distance::{Candidate, Metric};

use crate::space::{Group, Inverted, Query, Space};

/// The distances by which neighbors are chosen, and the number of neighbors.
#[derive(Clone, Copy)]
pub(crate) struct Rule<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) wanted: usize,
    /// Whether the build's codes, if there are any, represent the distances between elements near this one.
    pub(crate) resolved: bool,
}

/// Slack of the diversity rule (alpha of DiskANN's RobustPrune), as a ratio of squared distances: a candidate is pruned if it is
/// nearer to a chosen neighbor than to the element by this ratio. The second value applies where the first leaves slots free.
/// Little slack suits data of even density, more suits hubs.
const SLACKS: [f32; 2] = [1.02, 1.15];

/// With more candidates, comparing each with the chosen neighbors costs less than comparing all pairs.
pub(crate) const MOST_COMPARED: usize = 512;

/// Chooses neighbors; keeps its memory from one element to the next.
#[derive(Default)]
pub(crate) struct Selector {
    /// The candidates' elements, nearest first. Below, a candidate's number is its position here.
    members: Vec<u32>,
    /// The distance of each candidate from the element.
    distances: Vec<f32>,
    /// Numbers of the candidates that may be chosen, nearest first.
    ranked: Vec<u32>,
    taken: Vec<bool>,
    group: Group,
    inverted: Inverted,
    sums: Vec<f64>,
    center: Vec<f32>,
    /// Distances between candidates: a row for each, right of the diagonal.
    between: Vec<f32>,
    /// Entries of a row of `between`.
    width: usize,
    /// For each candidate, the distance to the nearest neighbor chosen so far.
    closest: Vec<f32>,
    /// For each candidate: the rule prunes it unless `closest` exceeds this.
    limits: Vec<f32>,
    /// Numbers of the chosen candidates.
    chosen: Vec<u32>,
    sorted: Vec<Candidate>,
    query: Query,
}

/// Which distances between candidates have been computed.
#[derive(Clone, Copy, PartialEq)]
enum Computed {
    /// All, from codes.
    ByCodes,
    /// All, from the values.
    ByValues,
    Nothing,
}

impl Selector {
    /// Chooses the neighbors of an element from distinct candidates, nearest first. Where codes do not resolve their distances, exact ones
    /// are computed.
    ///
    /// Under inner product the longest vectors are nearest to all others. Queries end there, but a path from one vector to another follows
    /// Euclidean distance: so a quarter of the neighbors is chosen by Euclidean distance.
    ///
    /// `list` is emptied first. Returns how many the diversity rule chose: they come first.
    pub(crate) fn choose(
        &mut self,
        rule: Rule<'_>,
        element: u32,
        candidates: &[Candidate],
        list: &mut Vec<Candidate>,
    ) -> usize {
        list.clear();
        if candidates.len() <= rule.wanted {
            list.extend_from_slice(candidates);
            return list.len();
        }
        self.set_candidates(candidates);
        let computed = self.compare(rule, element);
        self.ranked.clear();
        self.ranked.extend(0..self.members.len() as u32);
        let by_rule = match rule.space.euclidean() {
            Some(euclidean) => self.pick_by_both(rule, euclidean, computed, element),
            None => self.pick(rule, computed, element),
        };
        let named = |&at: &u32| Candidate::new(self.distances[at as usize], self.members[at as usize]);
        list.extend(self.chosen.iter().map(named));
        by_rule
    }

    fn set_candidates(&mut self, candidates: &[Candidate]) {
        self.members.clear();
        self.members.extend(candidates.iter().map(|candidate| candidate.element()));
        self.distances.clear();
        self.distances.extend(candidates.iter().map(|candidate| candidate.distance()));
    }

    fn pick_by_both(&mut self, rule: Rule<'_>, euclidean: Space<'_>, computed: Computed, element: u32) -> usize {
        let by_metric = self.pick(Rule { wanted: rule.wanted * 3 / 4, ..rule }, computed, element);
        let first = std::mem::take(&mut self.chosen);
        let distances = self.distances.clone();
        let computed = if computed == Computed::ByCodes {
            self.turn_euclidean(rule.space, element);
            computed
        } else if computed == Computed::ByValues && euclidean.measure.inverts() {
            self.inverted.turn_euclidean();
            let distances = self.inverted.distances(euclidean, element, &mut self.sums);
            self.distances.iter_mut().zip(distances).for_each(|(distance, euclidean)| *distance = euclidean);
            self.compare_inverted();
            computed
        } else {
            let measure = |&other: &u32| euclidean.distance(element, other);
            self.distances.iter_mut().zip(&self.members).for_each(|(distance, other)| *distance = measure(other));
            // The computed distances between candidates are of the other metric.
            Computed::Nothing
        };
        self.sorted.clear();
        let others = self.ranked.iter().filter(|at| !first.contains(at));
        self.sorted.extend(others.map(|&at| Candidate::new(self.distances[at as usize], at)));
        self.sorted.sort_unstable();
        self.ranked.clear();
        self.ranked.extend(self.sorted.iter().map(|candidate| candidate.element()));
        let by_distance =
            self.pick(Rule { space: euclidean, wanted: rule.wanted - first.len(), ..rule }, computed, element);
        let (others, rest) = self.chosen.split_at(by_distance);
        self.chosen = [&first[..by_metric], others, &first[by_metric..], rest].concat();
        self.distances = distances;
        by_metric + by_distance
    }

    /// The diversity rule with refill (algorithm 4 of the HNSW paper with `keepPrunedConnections`, and the slack of DiskANN's RobustPrune):
    /// takes candidates, nearest first, that are nearer to the element than to any neighbor chosen before; the nearest of the pruned
    /// candidates then fill the list. Returns how many the rule chose.
    fn pick(&mut self, rule: Rule<'_>, computed: Computed, element: u32) -> usize {
        self.chosen.clear();
        if self.ranked.len() <= rule.wanted {
            self.chosen.extend_from_slice(&self.ranked);
            return self.chosen.len();
        }
        self.taken.clear();
        self.taken.resize(self.members.len(), false);
        match computed {
            Computed::Nothing => self.one_by_one(rule, element),
            _ => self.by_distances(rule, element),
        }
        let by_rule = self.chosen.len();
        let rest = self.ranked.iter().filter(|&&at| !self.taken[at as usize]);
        self.chosen.extend(rest.take(rule.wanted - by_rule));
        by_rule
    }

    fn one_by_one(&mut self, rule: Rule<'_>, element: u32) {
        let space = rule.space;
        for slack in SLACKS {
            for &at in &self.ranked {
                if self.chosen.len() == rule.wanted {
                    return;
                }
                let candidate = self.members[at as usize];
                let limit = space.rule_limit(element, candidate, self.distances[at as usize], slack);
                if self.taken[at as usize] {
                    continue;
                }
                if !self.chosen.is_empty() {
                    space.prepare(&mut self.query, candidate);
                }
                let of = |chosen: u32| space.distance_of(&self.query, self.members[chosen as usize]);
                if self.chosen.iter().all(|&chosen| of(chosen) > limit) {
                    self.taken[at as usize] = true;
                    self.chosen.push(at);
                }
            }
        }
    }

    /// [`Self::one_by_one`] with the distances between all candidates, which tiles have computed: more distances, but each is much cheaper.
    fn by_distances(&mut self, rule: Rule<'_>, element: u32) {
        let width = self.width;
        self.closest.clear();
        self.closest.resize(self.members.len(), f32::INFINITY);
        let mut last = 0;
        for slack in SLACKS {
            rule.space.rule_limits(element, &self.members, &self.distances, slack, &mut self.limits);
            for &at in &self.ranked {
                if self.chosen.len() == rule.wanted {
                    return;
                }
                let number = at as usize;
                // A candidate at the same distance is pruned, too.
                let apart = |distance: f32| distance > self.limits[number];
                if self.taken[number] || !apart(self.closest[number]) {
                    continue;
                }
                let row = &self.between[number * width..];
                // `closest` covers only chosen candidates of lower numbers; mostly there are no others.
                let mut behind = self.chosen.iter().filter(|&&chosen| chosen > at);
                if at < last && !behind.all(|&chosen| apart(row[chosen as usize])) {
                    continue;
                }
                last = last.max(at);
                self.taken[number] = true;
                self.chosen.push(at);
                let columns = self.closest[number..].iter_mut().zip(&row[number..]);
                columns.for_each(|(closest, &distance)| *closest = closest.min(distance));
            }
        }
    }

    /// Computes the distances between candidates by tiles, except Manhattan distances. Where codes do not resolve them, exact distances are
    /// used, also to the element.
    fn compare(&mut self, rule: Rule<'_>, element: u32) -> Computed {
        let space = rule.space;
        let count = self.members.len();
        // By Manhattan distance, tiles of all pairs cost more than comparing each with the chosen neighbors.
        let tiles = space.measure.tiles.filter(|tiles| count <= MOST_COMPARED && tiles.metric != Metric::L1);
        if let Some(codes) = space.codes {
            let resolved =
                |&at: &usize| codes.resolves(element, space.squared(element, self.members[at], self.distances[at]));
            let ranks = [3.min(count / 2), 12.min(count / 2), count / 2];
            if let Some(tiles) = tiles.filter(|_| rule.resolved && ranks.iter().all(resolved)) {
                self.group.pack_codes(codes, &self.members);
                self.group.all_pairs(tiles, &mut self.between);
                self.width = self.group.padded();
                return Computed::ByCodes;
            }
            self.sorted.clear();
            self.sorted.extend(self.members.iter().map(|&other| Candidate::new(space.distance(element, other), other)));
            self.sorted.sort_unstable();
            let sorted = std::mem::take(&mut self.sorted);
            self.set_candidates(&sorted);
            self.sorted = sorted;
        }
        let Some(tiles) = tiles else {
            return if space.measure.inverts() && count <= MOST_COMPARED {
                self.invert(rule)
            } else {
                Computed::Nothing
            };
        };
        if tiles.metric == Metric::L2 {
            self.center.resize(tiles.dims, 0.0);
            distance::decode(tiles.elements, space.value(element), &mut self.center);
        }
        self.group.pack(space, tiles, &self.members, Some(&self.center), false);
        self.group.all_pairs(tiles, &mut self.between);
        self.width = self.group.padded();
        Computed::ByValues
    }

    /// Computes the distances between sparse candidates by inverted lists, unless they share most of their dimensions: then comparing each
    /// with the chosen neighbors costs less.
    fn invert(&mut self, rule: Rule<'_>) -> Computed {
        self.inverted.fill(rule.space, &self.members);
        if self.inverted.shared() > self.inverted.entries() * rule.wanted / 2 {
            return Computed::Nothing;
        }
        self.compare_inverted();
        Computed::ByValues
    }

    fn compare_inverted(&mut self) {
        let count = self.members.len();
        self.width = count;
        self.between.resize(count * count, 0.0);
        self.inverted.all_pairs(|a, b, distance| self.between[a * count + b] = distance);
    }

    /// Turns distances under inner product into squared Euclidean distances, without the part of the augmentation coordinate.
    fn turn_euclidean(&mut self, space: Space<'_>, element: u32) {
        let of = |&element: &u32| {
            (space.squared_length(element).unwrap_or_default(), space.extra_coordinate(element).unwrap_or_default())
        };
        let turned = |a: (f32, f32), b: (f32, f32), distance| a.0 + b.0 + 2.0 * distance - (a.1 - b.1) * (a.1 - b.1);
        let width = self.width;
        let ends: Vec<(f32, f32)> = self.members.iter().map(of).collect();
        for (at, distance) in self.distances.iter_mut().enumerate() {
            *distance = turned(ends[at], of(&element), *distance);
            let row = self.between[at * width..].iter_mut().zip(&ends).skip(at);
            row.for_each(|(distance, &end)| *distance = turned(ends[at], end, *distance));
        }
    }
}

#[cfg(test)]
mod tests {
    use distance::{Candidate, Elements, Metric};

    use super::{MOST_COMPARED, Rule, SLACKS, Selector};
    use crate::Control;
    use crate::input::ValueStore;
    use crate::space::{Codes, Measure, Space, augment};
    use crate::testing::{cube, euclidean, sparse, store, store_of};

    /// The neighbors of element 0 from all others, and how many of them the rule chose.
    fn choose(space: Space<'_>, elements: u32, wanted: usize) -> (Vec<u32>, usize) {
        let mut candidates: Vec<Candidate> = (1..elements).map(|other| space.candidate(0, other)).collect();
        candidates.sort_unstable();
        let mut list = Vec::new();
        let by_rule = Selector::default().choose(Rule { space, wanted, resolved: true }, 0, &candidates, &mut list);
        (list.iter().map(|neighbor| neighbor.element()).collect(), by_rule)
    }

    #[test]
    fn a_candidate_behind_a_neighbor_only_refills() {
        // Element 0 in the corner; 2 lies behind 1, and 4 behind 3.
        //
        //   4
        //   3
        //
        //   0 1 2
        let store = store(&[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 2.2], [0.0, 3.2]]);
        let space = euclidean::<2>(&store);
        assert_eq!(choose(space, 5, 2), (vec![1, 3], 2));
        // The slot left over goes to the nearest of the others, which comes last.
        assert_eq!(choose(space, 5, 3), (vec![1, 3, 2], 2));
        assert_eq!(choose(space, 5, 4), (vec![1, 2, 3, 4], 4), "no more candidates than slots");
    }

    #[test]
    fn slack_decides_before_refill() {
        // 2 is hardly nearer to 1 than to 0: the first slack prunes it, the second chooses it.
        let store = store(&[[0.0, 0.0], [1.0, 0.0], [0.52, 0.9], [0.0, -3.0], [0.1, -3.1]]);
        assert_eq!(choose(euclidean::<2>(&store), 5, 3), (vec![1, 3, 2], 3));
    }

    #[test]
    fn a_candidate_as_near_to_a_neighbor_only_refills() {
        // 1 and 2 have the value of 0; 3 is a step away from all of them.
        let store = store(&[[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]);
        let by_tiles = euclidean::<2>(&store);
        let one_by_one = Space::exact(Measure::new(Elements::F32, Metric::L1, 2).unwrap(), &store);
        for space in [by_tiles, one_by_one] {
            assert_eq!(choose(space, 4, 2), (vec![1, 3], 2), "{:?}", space.measure.metric);
        }
    }

    /// The neighbors of element 0 by the rule as the papers write it, and how many were chosen before the refill.
    fn reference(space: Space<'_>, mut candidates: Vec<u32>, wanted: usize) -> (Vec<u32>, usize) {
        candidates.sort_by(|&a, &b| space.distance(0, a).total_cmp(&space.distance(0, b)));
        let mut chosen: Vec<u32> = Vec::new();
        for slack in SLACKS {
            for &candidate in &candidates {
                let distance = space.distance(0, candidate);
                // Of products: |a - b|² = |a|² + |b|² - 2ab, and the distance is -ab.
                let limit = match space.squared_length(0).zip(space.squared_length(candidate)) {
                    Some((a, b)) => ((a + b + 2.0 * distance) / slack - a - b) / 2.0,
                    None => distance / slack,
                };
                let is_apart = chosen.iter().all(|&other| space.distance(candidate, other) > limit);
                if is_apart && chosen.len() < wanted && !chosen.contains(&candidate) {
                    chosen.push(candidate);
                }
            }
        }
        let by_rule = chosen.len();
        let rest: Vec<u32> = candidates.into_iter().filter(|candidate| !chosen.contains(candidate)).collect();
        chosen.extend(rest.into_iter().take(wanted - by_rule));
        (chosen, by_rule)
    }

    #[test]
    fn tiles_and_single_distances_choose_what_the_rule_says() {
        for (count, wanted) in [(60, 8), (MOST_COMPARED - 20, 32), (MOST_COMPARED + 40, 32)] {
            let points = cube::<4>(count, 5);
            let store = store(&points);
            let space = euclidean::<4>(&store);
            let expected = reference(space, (1..count as u32).collect(), wanted);
            assert_eq!(choose(space, count as u32, wanted), expected, "{count}");
        }
    }

    /// Three quarters of the neighbors by the metric, the others by Euclidean distance; the refill of both comes last.
    fn reference_by_both(space: Space<'_>, elements: u32, wanted: usize) -> (Vec<u32>, usize) {
        let space = Space { codes: None, ..space };
        let (first, by_metric) = reference(space, (1..elements).collect(), wanted * 3 / 4);
        let others = (1..elements).filter(|other| !first.contains(other)).collect();
        let (second, by_distance) = reference(space.euclidean().unwrap(), others, wanted - first.len());
        let (others, rest) = second.split_at(by_distance);
        ([&first[..by_metric], others, &first[by_metric..], rest].concat(), by_metric + by_distance)
    }

    #[test]
    fn under_inner_product_a_quarter_is_chosen_by_euclidean_distance() {
        const COUNT: u32 = 80;
        const WANTED: usize = 16;
        let control = Control::default();
        let mut points = cube::<24>(COUNT as usize, 7);
        // Lengths from a half to one and a half; the first element is of middle length.
        for (at, point) in (0..COUNT).zip(&mut points) {
            point.iter_mut().for_each(|x| *x *= 0.5 + ((at + COUNT / 2) % COUNT) as f32 / COUNT as f32);
        }
        let augmented = |elements, store: &ValueStore, coded: bool| {
            let measure = Measure::new(elements, Metric::InnerProduct, 24).unwrap();
            let space = Space::exact(measure, store);
            let augmentations = augment(space, COUNT, &control).unwrap().expect("lengths differ");
            let space = Space { augmentations: &augmentations, ..space };
            let expected = reference_by_both(space, COUNT, WANTED);
            let kernels = measure.tiles.filter(|_| coded).and_then(|tiles| Some((tiles, tiles.codes?)));
            let codes = kernels.map(|kernels| Codes::new(space, kernels, false, COUNT as usize, &control).unwrap());
            (choose(Space { codes: codes.as_ref(), ..space }, COUNT, WANTED), expected)
        };
        let (found, expected) = augmented(Elements::F32, &store(&points), false);
        assert_eq!(found, expected);
        // Each element has four of the dimensions: candidates are compared by inverted lists.
        let sparse = points.iter().zip(0u32..).map(|(point, at)| {
            let entries = (0..4).map(|step| (at * 5 + step * 7) % 24).collect::<std::collections::BTreeSet<u32>>();
            sparse(&entries.into_iter().map(|dim| (dim, point[dim as usize])).collect::<Vec<_>>())
        });
        let (found, expected) = augmented(Elements::Sparse, &store_of(sparse), false);
        assert_eq!(found, expected);
        // By codes, distances that hardly differ may change places.
        let (found, expected) = augmented(Elements::F32, &store(&points), true);
        let alike = found.0.iter().filter(|element| expected.0.contains(element)).count();
        assert!(alike >= WANTED - 1, "{found:?} {expected:?}");
        assert!(found.0[..4].iter().all(|element| expected.0[..5].contains(element)), "{found:?} {expected:?}");
    }
}
