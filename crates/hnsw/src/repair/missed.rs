//! Links to elements that searches miss.
//!
//! Where rows lie in many small groups, an element's neighbors are of its own group, and a search that arrives in another group may end there. So some
//! random elements are searched for. If a search ends farther away than the element's own neighbors lie, the element nearest to the end of the search
//! gets a link to the missed one. The diversity rule would choose that link: the search has compared all neighbors there, and none is nearer.
//!
//! A missed element stands for its group: the share of elements that are missed decides whether more are searched for. Where every element is about
//! equally far from all others, searches miss many, but end as near to them as their neighbors are: other links would not help.

use std::collections::HashMap;

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::Draft;
use crate::random::Random;
use crate::search::Searcher;
use crate::space::{Query, Space};
use crate::{BuildError, Control};

/// `ef` of these searches: small, since searches with small `ef_search` miss most.
const EF: usize = 10;
/// One of this many elements is searched for in a round, which costs a hundredth of a build.
const ONE_OF: usize = 16;
/// Rounds at most.
const ROUNDS: usize = 4;
/// A round that misses fewer than one of this many elements is the last.
const FEW: usize = 256;
/// An element gives up at most one of this many links.
const GIVEN: usize = 4;

/// Searches for some of `points`, and links those that are missed at layer 0. Returns the number of new links. Runs on the threads of the pool it is
/// called from.
pub(crate) fn link(
    draft: &mut Draft,
    points: &[u32],
    space: Space<'_>,
    mut random: Random,
    control: &Control,
) -> Result<u64, BuildError> {
    let mut given = HashMap::new();
    let mut linked = 0;
    for _ in 0..ROUNDS {
        let sought: Vec<u32> = (0..points.len().div_ceil(ONE_OF)).map(|_| points[random.below(points.len())]).collect();
        let before = &*draft;
        let search =
            |scratch: &mut (Searcher, Query), &element: &u32| Ok(end_of_search(before, space, scratch, element));
        let ends = control.section("missed elements").map_init(sought.par_iter(), search)?;
        let missed = sought.iter().zip(ends).filter_map(|(&element, end)| Some((end?, element)));
        let mut count = 0;
        for (end, element) in missed {
            count += 1;
            linked += u64::from(give_link(draft, &mut given, end, element));
        }
        control.ran("links to missed elements");
        if count * FEW < sought.len() {
            break;
        }
    }
    Ok(linked)
}

/// The nearest element that a search for `element` finds, if it misses it and ends farther away than half of its neighbors.
fn end_of_search(
    draft: &Draft,
    space: Space<'_>,
    (searcher, query): &mut (Searcher, Query),
    element: u32,
) -> Option<u32> {
    let neighbors = draft.neighbors(element, 0);
    let space = space.trusted(element, neighbors);
    space.ask(query, element);
    let distance = |other| match space.codes {
        Some(codes) => codes.distance(element, other),
        None => space.distance_of(query, other),
    };
    let found = searcher.search(draft, distance, |_| {}, EF);
    let end = *found.first()?;
    if end.distance() <= distance(element) || found.iter().any(|found| found.element() == element) {
        return None;
    }
    let mut near: Vec<f32> = neighbors.iter().map(|&other| distance(other)).collect();
    let middle = near.len() / 2;
    let farther = near.is_empty() || end.distance() > *near.select_nth_unstable_by(middle, f32::total_cmp).1;
    farther.then_some(end.element())
}

/// Gives `from` a link to `to`, in a free slot or in place of one of its last; `given` has the numbers of links that elements gave up. Returns whether
/// there was room.
fn give_link(draft: &mut Draft, given: &mut HashMap<u32, usize>, from: u32, to: u32) -> bool {
    let slots = draft.slots_mut(from, 0);
    if slots.contains(&to) {
        return false;
    }
    let free = slots.iter().position(|&slot| slot == NO_NEIGHBOR);
    let at = free.or_else(|| {
        let given = given.entry(from).or_insert(0);
        *given += 1;
        (*given <= slots.len() / GIVEN).then(|| slots.len() - *given)
    });
    if let Some(at) = at {
        slots[at] = to;
    }
    at.is_some()
}

#[cfg(test)]
mod tests {
    use super::link;
    use crate::Control;
    use crate::draft::Draft;
    use crate::random::Random;
    use crate::search::search_with;
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
        let found = |element: u32| search_with(draft, |other| squared(element, other), |_| {}, 10).contains(&element);
        (0..points.len() as u32).filter(|&element| !found(element)).count()
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
        let before = missed(&draft, &points);
        let linked = pool().run(|| link(&mut draft, &all, space, Random::new(1), &control)).unwrap();
        let after = missed(&draft, &points);
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
    fn elements_that_are_found_get_no_links() {
        let points = cube::<2>(64, 3);
        let store = store(&points);
        let space = euclidean::<2>(&store);
        let mut draft = Draft::new(32, vec![0; 64]);
        (0..64).for_each(|element| draft.set(element, 0, (0..64).filter(|&other| other != element)));
        let all: Vec<u32> = (0..64).collect();
        let links = |draft: &Draft| all.iter().map(|&element| draft.neighbors(element, 0).to_vec()).collect::<Vec<_>>();
        let before = links(&draft);
        let linked = pool().run(|| link(&mut draft, &all, space, Random::new(1), &Control::default())).unwrap();
        assert_eq!((linked, links(&draft)), (0, before));
    }
}
