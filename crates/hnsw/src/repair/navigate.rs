//! Makes a graph navigable: every element is searched for from the entry point, and considers what lies on the way as its neighbors.
//!
//! Lists made of the nearest neighbors alone leave islands: groups of rows that know only each other, where the diversity rule finds no
//! path. A search for an element of such a group ends at the place nearest to it outside; there the link is missing, and the rule keeps
//! it once it is a candidate, since nothing beside that place is nearer to the element (RobustPrune of Vamana, DiskANN, on the visited
//! elements of a search).
//!
//! A search for each element would cost several times as much as the graph did, so some elements are searched for: their neighbors are on the
//! way, too. It is done where measurement says that it is needed.

use distance::Candidate;

use crate::candidates::distinct;
use crate::draft::Draft;
use crate::search::{Links, Searcher};
use crate::select::{Choosing, Rule, Selector, Turn, choose_again};
use crate::space::{Query, Space};
use crate::{BuildError, Control, Pool};

/// Elements that a search for an element keeps, at most: few, since the way counts, not the end. No more than `ef_construction`.
const EF: usize = 24;
/// One of this number of points is searched for at layer 0: by points up to which it is so. A search costs the more the larger the table.
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

/// What stays the same from layer to layer.
struct Way<'a> {
    /// Elements that a search keeps.
    ef: usize,
    space: Space<'a>,
    pool: &'a Pool,
    control: &'a Control,
}

/// Searches for some of the points, which are in ascending order, and chooses the neighbors of all again, layer by layer from the top. `order`
/// has their positions, near ones next to each other.
pub(crate) fn improve(
    draft: &mut Draft,
    (points, order): (&[u32], &[u32]),
    ef_construction: u16,
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<(), BuildError> {
    let Some((_, top)) = draft.entry_point() else { return Ok(()) };
    let way = Way { ef: EF.min(ef_construction.into()), space, pool, control };
    for layer in (1..=top).rev() {
        let points: Vec<u32> = points.iter().copied().filter(|&point| draft.level(point) >= layer).collect();
        let order: Vec<u32> = (0..points.len() as u32).collect();
        way.improve_layer(draft, layer, (&points, &order), 1)?;
    }
    let one_of = ONE_OF.iter().find(|(most, _)| points.len() <= *most).map_or(1, |&(_, one_of)| one_of);
    way.improve_layer(draft, 0, (points, order), one_of)
}

impl Way<'_> {
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
        let choosing = Choosing { points, order, width, counted: false };
        let before = &*draft;
        let chosen =
            choosing.run(space, pool, control, |scratch: &mut Scratch, Turn { place, at, resolved }, list| {
                let point = points[at];
                let known = before.neighbors(point, layer);
                if place % one_of != 0 {
                    list.clear();
                    list.extend(known.iter().map(|&other| space.candidate(point, other)));
                    return;
                }
                let Scratch { searcher, expanded, candidates, selector, query } = scratch;
                let space = space.trusted(point, known);
                space.ask(query, point);
                let distance = |other| match space.codes {
                    Some(codes) => codes.distance(point, other),
                    None => space.distance_of(query, other),
                };
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
                selector.choose(Rule { space, wanted, resolved }, point, candidates, list);
            })?;
        if layer == 0 {
            // The second choice needs the memory, and looks only at the layers above.
            draft.drop_layer0();
        }
        let again = choose_again(&chosen, draft, layer, space, pool, control)?;
        drop(chosen);
        pool.run(|| again.place(draft, layer));
        Ok(())
    }
}
