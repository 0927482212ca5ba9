//! Links to elements that searches miss.
//!
//! Where rows lie in many small groups, most neighbors of an element are of its own group, and a search that arrives in another group may
//! end there. So some random elements are searched for. If the nearest element that a search finds is farther away than half of the sought
//! element's neighbors, the element found gets a link to the sought one. The diversity rule would keep that link: the search has compared
//! all neighbors of the element found with the sought one, and none is nearer to it.
//!
//! If a round of searches misses hardly any element, or links of one round do not help the next one, it is the last. In data without
//! structure searches miss many elements, but end as near to them as their neighbors are: they get no links, which would replace better
//! ones.

use std::collections::HashMap;

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::Draft;
use crate::random::Random;
use crate::search::{Distances, Searcher};
use crate::space::{Query, Space};
use crate::{BuildError, Control};

/// `ef` of these searches: small, since searches with small `ef_search` miss most.
const EF: usize = 10;
/// Elements searched for in the first round at most: enough to see whether searches miss one in `FEW`.
const FIRST: usize = 2048;
/// In each round, one of this many elements is searched for. The second and the third round are equal, so that they can be compared: a
/// thirty-second of the elements takes about a fiftieth of a build's CPU time.
const ONE_OF: [usize; 5] = [16, 32, 32, 16, 16];
/// A round that misses fewer than one of this many elements is the last.
const FEW: usize = 256;
/// The third round is the last if it misses more than this share of what the second one missed, which must be at least `COUNTED`: then
/// elements are missed one by one, and not by groups, where a link to one element of a group leads to all.
const STILL: f32 = 0.875;
/// With fewer missed elements, two rounds cannot be compared.
const COUNTED: usize = 16;
/// An element gives up at most one in this many of its links.
const GIVEN: usize = 4;

/// Searches for some of `points`, and links those that are missed, at layer 0. Runs on the threads of the pool it is called from.
pub(crate) fn link(
    draft: &mut Draft,
    points: &[u32],
    space: Space<'_>,
    mut random: Random,
    control: &Control,
) -> Result<(), BuildError> {
    let (mut given, mut missed_before) = (HashMap::new(), 0);
    for (round, one_of) in ONE_OF.into_iter().enumerate() {
        let wanted = points.len().div_ceil(one_of);
        let wanted = if round == 0 { wanted.min(FIRST) } else { wanted };
        let sought: Vec<u32> = (0..wanted).map(|_| points[random.below(points.len())]).collect();
        let before = &*draft;
        let search =
            |scratch: &mut (Searcher, Query), &element: &u32| Ok(end_of_search(before, space, scratch, element));
        let ends = control.section("missed elements").map_init(sought.par_iter(), search)?;
        let missed: Vec<(u32, u32)> =
            sought.iter().zip(ends).filter_map(|(&element, end)| Some((end?, element))).collect();
        for &(end, element) in &missed {
            give_link(draft, &mut given, end, element);
        }
        control.ran("links to missed elements");
        if missed.len() * FEW < sought.len() || round == 2 && hardly_fewer(missed.len(), missed_before) {
            break;
        }
        missed_before = missed.len();
    }
    Ok(())
}

/// Whether a round misses about as many elements as the round before, which searched for as many.
fn hardly_fewer(missed: usize, before: usize) -> bool {
    before >= COUNTED && missed as f32 > STILL * before as f32
}

/// The element where a search for `element` ends, if it misses `element` and ends farther from it than half of its neighbors are.
fn end_of_search(
    draft: &Draft,
    space: Space<'_>,
    (searcher, query): &mut (Searcher, Query),
    element: u32,
) -> Option<u32> {
    let neighbors = draft.neighbors(element, 0);
    let space = space.trusted(element, neighbors);
    let mut distances = space.distances_from(query, element);
    let found = searcher.search(draft, distances, |_| {}, EF);
    let end = *found.first()?;
    if end.distance() <= distances.of(element) || found.iter().any(|found| found.element() == element) {
        return None;
    }
    let mut near: Vec<f32> = neighbors.iter().map(|&other| distances.of(other)).collect();
    let middle = near.len() / 2;
    let farther = near.is_empty() || end.distance() > *near.select_nth_unstable_by(middle, f32::total_cmp).1;
    farther.then_some(end.element())
}

/// Gives `from` a link to `to`, in a free slot or in place of one of its last. `given` counts the links replaced per element; an element
/// that has reached the limit ([`GIVEN`]) keeps its links.
fn give_link(draft: &mut Draft, given: &mut HashMap<u32, usize>, from: u32, to: u32) {
    let slots = draft.slots_mut(from, 0);
    if slots.contains(&to) {
        return;
    }
    if let Some(free) = slots.iter().position(|&slot| slot == NO_NEIGHBOR) {
        slots[free] = to;
        return;
    }
    let given = given.entry(from).or_insert(0);
    if *given < slots.len() / GIVEN {
        *given += 1;
        slots[slots.len() - *given] = to;
    }
}

#[cfg(test)]
mod tests {
    use super::{hardly_fewer, link};
    use crate::Control;
    use crate::draft::Draft;
    use crate::random::Random;
    use crate::search::Searcher;
    use crate::testing::{cube, euclidean, pool, store};

    /// Points of a group.
    const GROUP: u32 = 20;
    const GROUPS: u32 = 50;
    const M: u16 = 4;

    /// Elements that searches with ef 10 do not find.
    fn missed(draft: &Draft, points: &[[f32; 4]]) -> usize {
        let squared = |a: u32, b: u32| -> f32 {
            points[a as usize].iter().zip(points[b as usize]).map(|(x, y)| (x - y) * (x - y)).sum()
        };
        let mut searcher = Searcher::default();
        let mut found = |element| searcher.search(draft, |other| squared(element, other), |_| {}, 10);
        let missed = |&element: &u32| found(element).iter().all(|near| near.element() != element);
        (0..points.len() as u32).filter(missed).count()
    }

    #[test]
    fn groups_that_searches_miss_are_linked() {
        // Small groups far from each other, linked in a ring only.
        let centers = cube::<4>(GROUPS as usize, 1);
        let spread = cube::<4>((GROUPS * GROUP) as usize, 2);
        let points: Vec<[f32; 4]> = (0..spread.len())
            .map(|at| std::array::from_fn(|dim| centers[at / GROUP as usize][dim] + 0.01 * spread[at][dim]))
            .collect();
        let all: Vec<u32> = (0..points.len() as u32).collect();
        let mut draft = Draft::new(M, vec![0; points.len()]);
        for &element in &all {
            let (group, place) = (element / GROUP * GROUP, element % GROUP);
            let next = (group + GROUP) % (GROUPS * GROUP);
            let own = (1..8).map(|step| group + (place + step) % GROUP);
            draft.set(element, 0, own.chain([next]));
        }
        let store = store(&points);
        let (space, control) = (euclidean::<4>(&store), Control::default());
        let (before, old) = (missed(&draft, &points), draft.copy(&control).unwrap());
        pool().run(|| link(&mut draft, &all, space, Random::new(1), &control)).unwrap();
        let after = missed(&draft, &points);
        let new = |&element: &u32| {
            let old = old.neighbors(element, 0);
            draft.neighbors(element, 0).iter().filter(|other| !old.contains(other)).count()
        };
        let linked: usize = all.iter().map(new).sum();
        assert!(before > points.len() / 4, "{before}");
        assert!(linked > 20 && after * 2 < before, "{linked} links: {before} missed before, {after} after");
        for &element in &all {
            let neighbors = draft.neighbors(element, 0);
            assert_eq!(
                neighbors[..6],
                (1..7).map(|step| element / GROUP * GROUP + (element % GROUP + step) % GROUP).collect::<Vec<_>>()[..]
            );
            assert!(
                neighbors.iter().enumerate().all(|(at, other)| *other != element && !neighbors[..at].contains(other))
            );
        }
    }

    #[test]
    fn rounds_are_compared_if_they_miss_enough() {
        assert!(hardly_fewer(98, 100) && hardly_fewer(120, 100) && !hardly_fewer(87, 100));
        assert!(hardly_fewer(16, 16) && !hardly_fewer(15, 15), "chance");
    }

    #[test]
    fn elements_that_are_found_get_no_links() {
        let points = cube::<2>(64, 3);
        let store = store(&points);
        let space = euclidean::<2>(&store);
        let mut draft = Draft::new(32, vec![0; 64]);
        (0..64).for_each(|element| draft.set(element, 0, (0..64).filter(|&other| other != element)));
        let all: Vec<u32> = (0..64).collect();
        let links = |draft: &Draft| all.iter().map(|&element| draft.neighbors(element, 0).to_vec()).collect::<Vec<_>>();
        let before = links(&draft);
        pool().run(|| link(&mut draft, &all, space, Random::new(1), &Control::default())).unwrap();
        assert_eq!(links(&draft), before);
    }
}
