//! Makes a graph navigable: elements are searched for from the entry point, and get the visited elements as candidates.
//!
//! Lists of nearest neighbors alone leave islands: groups of elements that link only to each other. A search for an element of such a group
//! ends at the nearest element outside; there the link is missing, and the diversity rule keeps it once it is a candidate, since no other
//! neighbor of that element is nearer (RobustPrune of Vamana, DiskANN, on the visited elements of a search).
//!
//! A search for each element of a large table would cost several times as much as its graph, so only some elements are searched for; their
//! neighbors are on the way too. This runs only if the guard's measures ask for it.

use distance::Candidate;

use crate::candidates::distinct;
use crate::draft::Draft;
use crate::search::{Links, Searcher};
use crate::select::{Choosing, Rule, Selector, Turn, choose_again, spread_links};
use crate::space::{Query, Space};
use crate::{BuildError, Control, Pool};

/// `ef` of these searches, at most `ef_construction`: small, since the path matters, not the result.
const EF: usize = 24;
/// `(points, n)`: at layer 0, with up to `points` points, every `n`th one is searched for. Searches cost more in larger tables.
const ONE_OF: [(usize, usize); 3] = [(50_000, 1), (200_000, 2), (usize::MAX, 4)];

impl Links for Draft {
    fn len(&self) -> usize {
        self.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        self.entry_point()
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        self.neighbors(element, layer).iter().copied()
    }
}

#[derive(Default)]
struct Scratch {
    searcher: Searcher,
    expanded: Vec<u32>,
    candidates: Vec<Candidate>,
    selector: Selector,
    query: Query,
}

/// The parameters that all layers share.
struct Navigation<'a> {
    /// Elements that a search keeps.
    ef: usize,
    space: Space<'a>,
    pool: &'a Pool,
    control: &'a Control,
}

/// Searches for some of the points, which are in ascending order, and selects the neighbors of all again, layer by layer from the top. `order`
/// has the points' positions, near points adjacent.
pub(crate) fn improve(
    draft: &mut Draft,
    (points, order): (&[u32], &[u32]),
    ef_construction: u16,
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<(), BuildError> {
    let Some((_, top)) = draft.entry_point() else { return Ok(()) };
    let navigation = Navigation { ef: EF.min(ef_construction.into()), space, pool, control };
    for layer in (1..=top).rev() {
        let points: Vec<u32> = points.iter().copied().filter(|&point| draft.level(point) >= layer).collect();
        let order: Vec<u32> = (0..points.len() as u32).collect();
        navigation.improve_layer(draft, layer, (&points, &order), 1)?;
    }
    let one_of = ONE_OF.iter().find(|(most, _)| points.len() <= *most).map_or(1, |&(_, one_of)| one_of);
    navigation.improve_layer(draft, 0, (points, order), one_of)
}

impl Navigation<'_> {
    fn improve_layer(
        &self,
        draft: &mut Draft,
        layer: u8,
        (points, order): (&[u32], &[u32]),
        one_of: usize,
    ) -> Result<(), BuildError> {
        let &Self { ef, space, pool, control } = self;
        let Some((entry, top)) = draft.entry_point() else { return Ok(()) };
        let width = draft.width(layer);
        let choosing = Choosing { points, order, width, name: "navigation", counted: false };
        let before = &*draft;
        let chosen =
            choosing.run(space, pool, control, |scratch: &mut Scratch, Turn { place, at, resolved }, list| {
                let point = points[at];
                let known = before.neighbors(point, layer);
                if place % one_of != 0 {
                    list.clear();
                    list.extend(known.iter().map(|&other| space.candidate(point, other)));
                    return list.len();
                }
                let Scratch { searcher, expanded, candidates, selector, query } = scratch;
                let space = space.trusted(point, known);
                let distance = space.distances_from(query, point);
                expanded.clear();
                let mut from = vec![Candidate::new(distance(entry), entry)];
                for upper in (layer + 1..=top).rev() {
                    from = searcher.layer(before, distance, |_| {}, &from, 1, upper);
                }
                candidates.clear();
                candidates.extend(searcher.layer(before, distance, |element| expanded.push(element), &from, ef, layer));
                let others = expanded.iter().chain(known);
                candidates.extend(others.map(|&other| Candidate::new(distance(other), other)));
                candidates.retain(|candidate| candidate.element() != point);
                candidates.sort_unstable();
                let kept = distinct(candidates, usize::MAX);
                candidates.truncate(kept);
                let wanted = width.min(points.len() - 1);
                selector.choose(Rule { space, wanted, resolved }, point, candidates, list)
            })?;
        if layer == 0 {
            // The second selection needs the memory, and reads only the layers above.
            draft.drop_layer0();
        }
        let again = choose_again(&chosen, draft, layer, space, pool, control)?;
        drop(chosen);
        pool.run(|| {
            let by_rule = again.place(draft, layer, control)?;
            if layer == 0 { spread_links(draft, space, points, order, &by_rule, control) } else { Ok(()) }
        })
    }
}
