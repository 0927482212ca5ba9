//! The pivots of a split: random points. Every other point goes to the part of its nearest pivots.

use distance::{Candidate, Nearest, Tile};

use crate::space::representation::most;
use crate::space::{Group, Inverted, Query, Representation, Space, Tiles};

/// The pivots of a group of near-identical ones are compared with an element one by one if they are fewer.
const MANY: usize = 32;

pub(crate) struct Pivots<'a> {
    elements: Vec<u32>,
    comparison: Comparison<'a>,
}

/// How points are compared with the pivots.
enum Comparison<'a> {
    /// In blocks, by tiles.
    Blocks(Packed<'a>),
    /// In blocks with one pivot of each group of near-identical pivots, then with all pivots of the nearest groups.
    Merged {
        first: Packed<'a>,
        groups: Vec<Merged<'a>>,
    },
    /// Sparse values, by the dimensions they share with the pivots.
    Inverted(Inverted),
    OneByOne,
}

/// Pivots whose distances to each other tiles of all pivots do not resolve.
struct Merged<'a> {
    /// Their positions among all pivots.
    at: Vec<u32>,
    /// For a large group its pivots alone, packed around their own mean, so that tiles can resolve their distances.
    alone: Option<Pivots<'a>>,
}

struct Packed<'a> {
    tiles: Tiles,
    representation: Representation<'a>,
    group: Group,
}

/// Memory that a thread reuses from task to task.
#[derive(Default)]
pub(crate) struct Scratch {
    nearest: Nearest,
    group: Group,
    tile: Tile,
    query: Query,
    sums: Vec<f64>,
}

impl<'a> Pivots<'a> {
    pub(crate) fn new(space: Space<'a>, elements: Vec<u32>) -> Self {
        let comparison = match space.measure.tiles {
            Some(tiles) => match Packed::new(space, tiles, &elements) {
                Some(packed) => Comparison::Blocks(packed),
                None => Comparison::merged(space, tiles, &elements),
            },
            None => {
                let mut inverted = Inverted::default();
                inverted.fill(space, &elements);
                Comparison::Inverted(inverted)
            }
        };
        Self { elements, comparison }
    }

    /// Writes the positions of each element's nearest pivots into `assigned`, nearest first, as many per element as it has room for;
    /// `u32::MAX` where there are fewer.
    pub(crate) fn nearest(&self, space: Space<'_>, elements: &[u32], scratch: &mut Scratch, assigned: &mut [u32]) {
        let fan = assigned.len() / elements.len();
        let k = fan.min(self.elements.len());
        let Scratch { nearest, group, tile, query, sums } = scratch;
        match &self.comparison {
            Comparison::Merged { first, groups } => {
                first.compare(space, elements, fan.min(groups.len()), (nearest, group, tile));
                self.nearest_merged(space, elements, (nearest, groups), assigned);
                return;
            }
            Comparison::Blocks(packed) => packed.compare(space, elements, k, (nearest, group, tile)),
            Comparison::Inverted(inverted) => {
                nearest.reset(elements.len(), elements.len(), k);
                for (at, &element) in elements.iter().enumerate() {
                    let distances = (0..).zip(inverted.distances(space, element, sums));
                    distances.for_each(|(pivot, distance)| nearest.offer(at, distance, pivot));
                }
            }
            Comparison::OneByOne => {
                nearest.reset(elements.len(), elements.len(), k);
                for (at, &element) in elements.iter().enumerate() {
                    space.prepare(query, element);
                    for (pivot, &other) in self.elements.iter().enumerate() {
                        nearest.offer(at, space.distance_of(query, other), pivot as u32);
                    }
                }
            }
        }
        assigned.fill(u32::MAX);
        for (at, assigned) in assigned.chunks_exact_mut(fan).enumerate() {
            for (slot, pivot) in assigned.iter_mut().zip(nearest.of(at)) {
                *slot = pivot.element();
            }
        }
    }

    /// [`Self::nearest`] among the pivots of the nearest groups, by exact distances.
    fn nearest_merged(
        &self,
        space: Space<'_>,
        elements: &[u32],
        (nearest, groups): (&Nearest, &[Merged<'_>]),
        assigned: &mut [u32],
    ) {
        let fan = assigned.len() / elements.len();
        let mut of_group: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
        for at in 0..elements.len() {
            nearest.of(at).for_each(|group| of_group[group.element() as usize].push(at));
        }
        // Positions of pivots for each element.
        let mut among: Vec<Vec<u32>> = vec![Vec::new(); elements.len()];
        let mut scratch = Scratch::default();
        for (Merged { at: pivots, alone }, of_group) in groups.iter().zip(&of_group).filter(|(_, of)| !of.is_empty()) {
            let Some(alone) = alone else {
                of_group.iter().for_each(|&at| among[at].extend(pivots));
                continue;
            };
            let near: Vec<u32> = of_group.iter().map(|&at| elements[at]).collect();
            let mut found = vec![0; near.len() * fan];
            alone.nearest(space, &near, &mut scratch, &mut found);
            for (&at, found) in of_group.iter().zip(found.chunks_exact(fan)) {
                among[at].extend(found.iter().filter_map(|&found| pivots.get(found as usize)));
            }
        }
        assigned.fill(u32::MAX);
        let mut near: Vec<Candidate> = Vec::new();
        for ((&element, among), assigned) in elements.iter().zip(&among).zip(assigned.chunks_exact_mut(fan)) {
            space.prepare(&mut scratch.query, element);
            let distance = |pivot: u32| space.distance_of(&scratch.query, self.elements[pivot as usize]);
            near.clear();
            near.extend(among.iter().map(|&pivot| Candidate::new(distance(pivot), pivot)));
            near.sort_unstable();
            assigned.iter_mut().zip(&near).for_each(|(slot, pivot)| *slot = pivot.element());
        }
    }
}

impl<'a> Comparison<'a> {
    /// Groups pivots whose distances tiles do not resolve, such as near-identical rows.
    fn merged(space: Space<'a>, tiles: Tiles, pivots: &[u32]) -> Self {
        let representation = Representation::centered(space, tiles, pivots);
        let mut all = Group::default();
        representation.pack(space, tiles, pivots, &mut all);
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut query = Query::default();
        for (at, &pivot) in pivots.iter().enumerate() {
            space.prepare(&mut query, pivot);
            let is_near = |group: &&mut Vec<u32>| {
                let other = pivots[group[0] as usize];
                !all.resolves(at, space.squared(pivot, other, space.distance_of(&query, other)))
            };
            match groups.iter_mut().find(is_near) {
                Some(group) => group.push(at as u32),
                None => groups.push(vec![at as u32]),
            }
        }
        if groups.len() == 1 {
            return Self::OneByOne;
        }
        let first: Vec<u32> = groups.iter().map(|group| pivots[group[0] as usize]).collect();
        let mut group = Group::default();
        representation.pack(space, tiles, &first, &mut group);
        let merged = |at: Vec<u32>| {
            let alone = || Pivots::new(space, at.iter().map(|&at| pivots[at as usize]).collect());
            let alone = (at.len() >= MANY).then(alone);
            Merged { at, alone }
        };
        let groups = groups.into_iter().map(merged).collect();
        Self::Merged { first: Packed { tiles, representation, group }, groups }
    }
}

/// For a sample of pivots, the nearest other pivot.
fn gaps(space: Space<'_>, pivots: &[u32]) -> Vec<Gap> {
    const SAMPLE: usize = 32;
    let gap = |at: usize| {
        let others = pivots.iter().enumerate().filter(|&(other, _)| other != at);
        let squares = others.map(|(_, &other)| (space.squared_distance(pivots[at], other), other));
        let (squared, nearest) = squares.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f32::INFINITY, pivots[at]));
        Gap { at, squared, nearest }
    };
    (0..pivots.len()).step_by(pivots.len().div_ceil(SAMPLE).max(1)).map(gap).collect()
}

struct Gap {
    /// The position of the pivot.
    at: usize,
    /// The square of the distance to its nearest neighbor.
    squared: f32,
    nearest: u32,
}

impl<'a> Packed<'a> {
    /// Packs the pivots by the first representation that resolves the distances between most pivots and their nearest neighbors. `None` if
    /// none does, as between clusters far from each other.
    fn new(space: Space<'a>, tiles: Tiles, pivots: &[u32]) -> Option<Self> {
        let gaps = gaps(space, pivots);
        Representation::of(space, tiles, pivots).find_map(|representation| {
            let mut group = Group::default();
            representation.pack(space, tiles, pivots, &mut group);
            let resolved = most(gaps.iter().map(|gap| group.resolves(gap.at, gap.squared)));
            let pairs = gaps.iter().map(|gap| (pivots[gap.at], gap.nearest));
            (resolved && representation.represents_most(space, pairs)).then_some(Self { tiles, representation, group })
        })
    }

    fn compare(
        &self,
        space: Space<'_>,
        elements: &[u32],
        k: usize,
        (nearest, group, tile): (&mut Nearest, &mut Group, &mut Tile),
    ) {
        self.representation.pack(space, self.tiles, elements, group);
        group.nearest(elements.len(), &self.group, self.tiles, k, (nearest, tile));
    }
}

#[cfg(test)]
mod tests {
    use distance::Candidate;

    use super::{Comparison, Pivots, Scratch};
    use crate::space::Space;
    use crate::testing::{cube, euclidean, store};

    const COUNT: usize = 400;
    const PIVOTS: usize = 160;
    const FAN: usize = 6;

    /// The share of the nearest pivots of all points that are found, 0 to 1. The first points are the pivots.
    fn found(space: Space<'_>, pivots: &Pivots<'_>) -> f32 {
        let points: Vec<u32> = (0..COUNT as u32).collect();
        let mut assigned = vec![0; COUNT * FAN];
        pivots.nearest(space, &points, &mut Scratch::default(), &mut assigned);
        let mut hits = 0;
        for (&point, assigned) in points.iter().zip(assigned.chunks(FAN)) {
            let mut all: Vec<Candidate> =
                (0..PIVOTS as u32).map(|pivot| Candidate::new(space.distance(point, pivot), pivot)).collect();
            all.sort_unstable();
            hits += all[..FAN].iter().filter(|pivot| assigned.contains(&pivot.element())).count();
        }
        hits as f32 / (COUNT * FAN) as f32
    }

    #[test]
    fn near_identical_pivots_are_resolved() {
        // All but a few points are in three groups, whose distances tiles do not resolve.
        let (centers, mut values) = (cube::<16>(3, 1), cube::<16>(COUNT, 2));
        for (at, value) in values.iter_mut().enumerate().filter(|(at, _)| at % 8 != 0) {
            value.iter_mut().zip(centers[at % 3]).for_each(|(x, center)| *x = center + 1e-5 * *x);
        }
        let store = store(&values);
        let space = euclidean::<16>(&store);
        let pivots = Pivots::new(space, (0..PIVOTS as u32).collect());
        let Comparison::Merged { groups, .. } = &pivots.comparison else { panic!("no pivots are merged") };
        assert_eq!(groups.len(), 3 + PIVOTS / 8);
        assert_eq!(groups.iter().filter(|group| group.alone.is_some()).count(), 3);
        let found = found(space, &pivots);
        assert!(found >= 0.95, "{found}");
    }

    #[test]
    fn pivots_that_products_resolve_are_compared_in_blocks() {
        let store = store(&cube::<16>(COUNT, 2));
        let space = euclidean::<16>(&store);
        let pivots = Pivots::new(space, (0..PIVOTS as u32).collect());
        assert!(matches!(pivots.comparison, Comparison::Blocks(_)));
        let found = found(space, &pivots);
        assert!(found >= 0.95, "{found}");
    }
}
