//! Selects the neighbors of a layer from an engine's candidates.
//!
//! pgvector fills every layer-0 list with the nearest candidates that its diversity rule has dropped, and VACUUM repairs lists
//! that are not full. So if an engine found too few candidates, the candidates' own candidates are added.

use distance::Candidate;
use graph::NO_NEIGHBOR;

use super::round::{Choosing, Turn};
use super::rule::{Rule, Selector};
use super::{balance_in_degrees, choose_again, link_out};
use crate::candidates::Candidates;
use crate::draft::Draft;
use crate::space::Space;
use crate::{BuildError, Control, Pass, Pool, memory};

/// An engine's candidates for the elements of one layer.
pub(crate) struct Gathered {
    /// All elements of the layer but duplicates, in ascending order.
    pub(crate) points: Vec<u32>,
    /// Positions in `points`, near points adjacent, so that candidates they share are read from memory once.
    pub(crate) order: Vec<u32>,
    pub(crate) near: Candidates,
    /// Under inner product, candidates by Euclidean distance.
    pub(crate) also: Option<Candidates>,
    pub(crate) pivots: NearestPivots,
    /// A point with fewer candidates also gets its candidates' candidates.
    pub(crate) at_least: usize,
    /// Whether an engine inserted the elements, which has made reverse links: no reverse-edge pass, links out or remedies follow.
    pub(crate) inserted: bool,
}

/// For each point, its nearest pivots, which are spread over all elements. Without links to them a search takes too many steps along a long
/// thin cluster, and finds no path between separate clusters.
#[derive(Default)]
pub(crate) struct NearestPivots {
    per_point: usize,
    elements: Vec<u32>,
}

impl NearestPivots {
    /// From `per_point` elements for each point, in order; `NO_NEIGHBOR` where there are fewer.
    pub(crate) fn new(per_point: usize, elements: Vec<u32>) -> Self {
        Self { per_point, elements }
    }

    fn of(&self, at: usize) -> impl Iterator<Item = u32> {
        let elements = self.elements.get(at * self.per_point..(at + 1) * self.per_point).unwrap_or_default();
        elements.iter().copied().filter(|&element| element != NO_NEIGHBOR)
    }
}

/// Selects every point's neighbors at a layer: at layer 0 `2 * m`, or all other points if there are fewer.
pub(crate) fn fill(
    draft: &mut Draft,
    layer: u8,
    gathered: Gathered,
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<(), BuildError> {
    let width = draft.width(layer);
    let wanted = width.min(gathered.points.len().saturating_sub(1));
    if layer == 0 && gathered.points.iter().all(|&point| draft.neighbors(point, 0).len() >= wanted) {
        // The engine has filled all lists.
        return Ok(());
    }
    let (points, order) = (&gathered.points, &gathered.order);
    // Progress is counted in elements, all of which are on layer 0.
    let choosing = Choosing { points, order, width, name: "first selection", counted: layer == 0 };
    let choose = |scratch: &mut Scratch, turn, list: &mut Vec<Candidate>| {
        gathered.choose(space, turn, width, layer == 0, scratch, list)
    };
    let mut chosen = choosing.run(space, pool, control, choose)?;
    // Candidates take the most memory of a build: they are freed before the lists of layer 0 are allocated.
    pool.run(|| gathered.near.free(control))?;
    gathered.also.map_or(Ok(()), |also| pool.run(|| also.free(control)))?;
    if layer == 0 {
        memory::give_back();
        control.ran("memory given back");
    }
    if !gathered.inserted && control.runs(Pass::ReverseEdges) {
        chosen = choose_again(&chosen, draft, layer, space, pool, control)?;
    }
    let inserted = gathered.inserted;
    pool.run(|| {
        let by_rule = chosen.place(draft, layer, control)?;
        if layer == 0 && control.runs(Pass::InDegree) {
            balance_in_degrees(draft, space, points, order, &by_rule, control)?;
        }
        if !inserted && control.runs(Pass::LinksOut) {
            link_out(draft, layer, space, choosing, control)
        } else {
            Ok(())
        }
    })
}

#[derive(Default)]
struct Scratch {
    candidates: Vec<Candidate>,
    more: Vec<Candidate>,
    selector: Selector,
}

impl Gathered {
    /// Candidates of an engine that inserts elements: without pivots.
    pub(crate) fn by_insertion(points: Vec<u32>, near: Candidates, at_least: usize) -> Self {
        let order = (0..points.len() as u32).collect();
        Self { points, order, near, also: None, pivots: NearestPivots::default(), at_least, inserted: true }
    }

    /// All elements, near ones adjacent. Each of `duplicates`, `(duplicate, first element of the same value)`, follows that first element.
    pub(crate) fn near_order(&self, duplicates: &[(u32, u32)]) -> Vec<u32> {
        let points = self.order.iter().map(|&at| self.points[at as usize]);
        if duplicates.is_empty() {
            return points.collect();
        }
        let mut by_first: Vec<(u32, u32)> = duplicates.iter().map(|&(duplicate, first)| (first, duplicate)).collect();
        by_first.sort_unstable();
        let of = |point| {
            let start = by_first.partition_point(|&(first, _)| first < point);
            by_first[start..].iter().take_while(move |&&(first, _)| first == point).map(|&(_, duplicate)| duplicate)
        };
        points.flat_map(|point| std::iter::once(point).chain(of(point))).collect()
    }

    fn choose(
        &self,
        space: Space<'_>,
        Turn { at, resolved, .. }: Turn,
        width: usize,
        full: bool,
        scratch: &mut Scratch,
        list: &mut Vec<Candidate>,
    ) -> usize {
        let element = self.points[at];
        let wanted = width.min(self.points.len() - 1);
        let Scratch { candidates, more, selector } = scratch;
        candidates.clear();
        self.near.of(at, candidates);
        more.clear();
        if let Some(also) = &self.also {
            also.of(at, more);
        }
        for other in self.pivots.of(at).chain(more.iter().map(|other| other.element())) {
            if other != element && candidates.iter().all(|known| known.element() != other) {
                let candidate = space.candidate(element, other);
                candidates.insert(candidates.partition_point(|known| *known < candidate), candidate);
            }
        }
        if full && candidates.len() < self.at_least.max(wanted) {
            self.add_candidates_of_candidates(space, at, self.at_least.max(2 * wanted), candidates, more);
            if candidates.len() < wanted {
                self.add_arbitrary(space, at, wanted, candidates);
            }
            candidates.sort_unstable();
        }
        selector.choose(Rule { space, wanted, resolved }, element, candidates, list)
    }

    /// Breadth-first search from the known candidates, nearest first, until `target` elements are known or no more are found.
    fn add_candidates_of_candidates(
        &self,
        space: Space<'_>,
        at: usize,
        target: usize,
        known: &mut Vec<Candidate>,
        more: &mut Vec<Candidate>,
    ) {
        let element = self.points[at];
        let mut next = 0;
        while next < known.len() && known.len() < target {
            let Ok(local) = self.points.binary_search(&known[next].element()) else { return };
            more.clear();
            self.near.of(local, more);
            for other in more.iter().map(|other| other.element()) {
                if other != element && known.iter().all(|known| known.element() != other) {
                    known.push(space.candidate(element, other));
                }
            }
            next += 1;
        }
    }

    /// Adds arbitrary points, for a point whose part of the graph is smaller than a list.
    fn add_arbitrary(&self, space: Space<'_>, at: usize, wanted: usize, known: &mut Vec<Candidate>) {
        let element = self.points[at];
        // Start after the point, so that not all isolated points link to the same elements.
        for &other in self.points[at + 1..].iter().chain(&self.points[..at]) {
            if known.len() >= wanted {
                return;
            }
            if known.iter().all(|known| known.element() != other) {
                known.push(space.candidate(element, other));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gathered, fill};
    use crate::candidates::Candidates;
    use crate::draft::Draft;
    use crate::testing::{cube, euclidean, pool, store};
    use crate::{Control, Pass};

    fn gathered(count: usize, at_least: usize) -> Gathered {
        Gathered::by_insertion((0..count as u32).collect(), Candidates::new(count, 32), at_least)
    }

    fn lists(gathered: Gathered) -> Vec<Vec<u32>> {
        let count = gathered.points.len();
        let store = store(&cube::<2>(count, 1));
        let mut draft = Draft::new(2, vec![0; count]);
        fill(&mut draft, 0, gathered, euclidean::<2>(&store), &pool(), &Control::default()).unwrap();
        (0..count as u32).map(|element| draft.neighbors(element, 0).to_vec()).collect()
    }

    #[test]
    fn lists_are_full_without_any_candidate() {
        for count in [1, 2, 4, 5, 9] {
            for (element, mut list) in (0..).zip(lists(gathered(count, 0))) {
                assert!(!list.contains(&element));
                list.sort_unstable();
                list.dedup();
                assert_eq!(list.len(), (count - 1).min(4));
            }
        }
    }

    #[test]
    fn candidates_of_candidates_fill_a_list() {
        // Each has only the next one as a candidate: its list comes from the chain, which has more than enough elements.
        const COUNT: usize = 40;
        let gathered = gathered(COUNT, 4);
        let store = store(&cube::<2>(COUNT, 1));
        let space = euclidean::<2>(&store);
        let next = |at: usize| space.candidate(at as u32, ((at + 1) % COUNT) as u32);
        (0..COUNT).for_each(|at| gathered.near.add(at, std::iter::once(next(at))));
        for (element, list) in lists(gathered).into_iter().enumerate() {
            let is_near = |other: &&u32| (1..=8).contains(&((**other as usize + COUNT - element) % COUNT));
            // The in-degree pass gives refilled slots to elements of low in-degree.
            assert!(list.len() == 4 && list.iter().filter(is_near).count() >= 2, "{element}: {list:?}");
        }
    }

    #[test]
    fn in_degrees_are_balanced_on_layer_0_only() {
        const COUNT: usize = 300;
        let mut values = cube::<3>(COUNT, 2);
        // Far from all others: few choose them.
        values[COUNT - 20..].iter_mut().flatten().for_each(|x| *x *= 20.0);
        let store = store(&values);
        let space = euclidean::<3>(&store);
        let lists = |layer: u8, control: &Control| {
            let gathered = Gathered { inserted: false, ..gathered(COUNT, 16) };
            for at in 0..COUNT as u32 {
                gathered
                    .near
                    .add(at as usize, (0..COUNT as u32).filter(|&it| it != at).map(|it| space.candidate(at, it)));
            }
            let mut draft = Draft::new(8, vec![layer; COUNT]);
            fill(&mut draft, layer, gathered, space, &pool(), control).unwrap();
            (0..COUNT as u32).flat_map(|element| draft.neighbors(element, layer).to_vec()).collect::<Vec<u32>>()
        };
        let differ = |layer, pass| lists(layer, &Control::default().without(pass)) != lists(layer, &Control::default());
        // Layer 0 alone balances in-degrees.
        assert_eq!([0, 1].map(|layer| differ(layer, Pass::InDegree)), [true, false]);
        assert_eq!([0, 1].map(|layer| differ(layer, Pass::ReverseEdges)), [true, true]);
    }
}
