//! Makes a graph navigable: elements are searched for from the entry point, and get the visited elements as candidates.
//!
//! Lists of nearest neighbors alone leave islands: groups of elements that link only to each other. A search for an element of such a group
//! ends at the nearest element outside; there the link is missing, and the diversity rule keeps it once it is a candidate, since no other
//! neighbor of that element is nearer (RobustPrune of Vamana, DiskANN, on the visited elements of a search).
//!
//! A search for each element of a large table would cost several times as much as its graph, so only some elements are searched for; their
//! neighbors lie on the same paths. This pass runs only if the guard measures a loss, and if a trial mends a part of it: the elements that the
//! guard's probes miss are searched for and linked alone. Lists too short for the data, or noise, lose as much, and gain nothing.

use std::collections::HashMap;

use distance::Candidate;

use crate::candidates::keep_distinct;
use crate::draft::Draft;
use crate::repair::guard::LOST;
use crate::search::{Distances, Searcher};
use crate::select::{Choosing, Rule, Selector, Turn, balance_in_degrees, choose_again};
use crate::space::{Query, Space};
use crate::{BuildError, Control, Pool};

/// `ef` of these searches, at most `ef_construction`: small, since the path matters, not the result.
const EF: usize = 24;
/// `(points, n)`: at layer 0, with up to `points` points, every `n`th one is searched for. Searches cost more in larger tables.
const ONE_OF: [(usize, usize); 2] = [(50_000, 1), (200_000, 2)];
/// With more points, every `SPARSE_STEP`th one is searched for; also where `ef_construction` is at most `CHEAP`: the graph then costs so
/// little that searches for all points would take longer.
const SPARSE_STEP: usize = 4;
const CHEAP: u16 = 32;
/// At most this many points are searched for: in the largest tables every step of a search waits for memory.
const SEARCHED: usize = 100_000;

#[derive(Default)]
struct Scratch {
    searcher: Searcher,
    expanded: Vec<u32>,
    candidates: Vec<Candidate>,
    selector: Selector,
    query: Query,
}

/// Searches for elements, and gives them the visited elements as candidates.
#[derive(Clone, Copy)]
pub(crate) struct Navigation<'a> {
    ef_construction: u16,
    space: Space<'a>,
    pool: &'a Pool,
    control: &'a Control,
}

/// Whether navigation may mend more than the guard takes for a loss ([`LOST`]). If only every `n`th element is searched for, it mends about
/// an `n`th of what is `lost`; but nearly all of it if every second one is, since most of the others profit, too.
pub(crate) fn may_mend(lost: f32, points: usize) -> bool {
    let one_of = one_of_rows(points);
    lost > LOST * if one_of > 2 { one_of as f32 } else { 1.0 }
}

/// At layer 0 with `points` points, every `n`th is searched for; returns `n`.
fn one_of(points: usize, ef_construction: u16) -> usize {
    let least = if ef_construction > CHEAP { 1 } else { SPARSE_STEP };
    one_of_rows(points).max(least)
}

/// [`one_of`] for an `ef_construction` above [`CHEAP`].
fn one_of_rows(points: usize) -> usize {
    let affordable = ONE_OF.iter().find(|(most, _)| points <= *most);
    affordable.map_or(SPARSE_STEP, |&(_, one_of)| one_of).max(points.div_ceil(SEARCHED))
}

impl<'a> Navigation<'a> {
    pub(crate) fn new(ef_construction: u16, space: Space<'a>, pool: &'a Pool, control: &'a Control) -> Self {
        Self { ef_construction, space, pool, control }
    }

    /// Searches for some of the points, which are in ascending order, and selects the neighbors of all again, layer by layer from the top.
    /// `order` has the points' positions, near points adjacent.
    pub(crate) fn improve(self, draft: &mut Draft, (points, order): (&[u32], &[u32])) -> Result<(), BuildError> {
        let Some((_, top)) = draft.entry_point() else { return Ok(()) };
        for layer in (1..=top).rev() {
            let points: Vec<u32> = points.iter().copied().filter(|&point| draft.level(point) >= layer).collect();
            let order: Vec<u32> = (0..points.len() as u32).collect();
            self.improve_layer(draft, layer, (&points, &order), 1)?;
        }
        self.improve_layer(draft, 0, (points, order), one_of(points.len(), self.ef_construction))
    }

    fn improve_layer(
        self,
        draft: &mut Draft,
        layer: u8,
        (points, order): (&[u32], &[u32]),
        one_of: usize,
    ) -> Result<(), BuildError> {
        let Self { space, pool, control, .. } = self;
        // Progress is counted in elements, all of which are on layer 0. They choose twice.
        let counted = layer == 0;
        if counted {
            control.progress().expect_more(2 * points.len() as u64);
        }
        let choosing = Choosing { points, order, width: draft.width(layer), name: "navigation", counted };
        let before = &*draft;
        let chosen = choosing.run(space, pool, control, |scratch: &mut Scratch, turn, list| {
            if turn.place % one_of == 0 {
                return self.choose_from_path(before, layer, choosing, turn, scratch, list);
            }
            let point = points[turn.at];
            list.clear();
            list.extend(before.neighbors(point, layer).iter().map(|&other| space.candidate(point, other)));
            list.len()
        })?;
        if layer == 0 {
            // The reverse-edge pass needs the memory, and reads only the layers above.
            draft.drop_layer0();
        }
        let again = choose_again(&chosen, draft, layer, space, pool, control)?;
        drop(chosen);
        pool.run(|| {
            let by_rule = again.place(draft, layer, control)?;
            if layer == 0 { balance_in_degrees(draft, space, points, order, &by_rule, control) } else { Ok(()) }
        })
    }

    /// Searches for these elements alone, in ascending order, and links them, at layer 0: a trial of what [`Navigation::improve`] does for
    /// them. Unlike there, all elements that chose an element are its candidates, however many, and its neighbors on upper layers are not.
    /// `points` are all elements that have neighbors, in ascending order.
    pub(crate) fn try_for(self, draft: &mut Draft, points: &[u32], sought: &[u32]) -> Result<(), BuildError> {
        let Self { space, pool, control, .. } = self;
        let position = |element: u32| points.binary_search(&element).ok().map(|at| at as u32);
        let order: Vec<u32> = sought.iter().filter_map(|&element| position(element)).collect();
        let choosing =
            Choosing { points, order: &order, width: draft.width(0), name: "navigation tried", counted: false };
        let before = &*draft;
        let chosen = choosing.run(space, pool, control, |scratch: &mut Scratch, turn, list| {
            self.choose_from_path(before, 0, choosing, turn, scratch, list)
        })?;
        let mut choosers: HashMap<u32, Vec<Candidate>> = HashMap::new();
        for place in 0..order.len() {
            for near in chosen.list(place) {
                let chooser = Candidate::new(near.distance(), choosing.at(place));
                choosers.entry(near.element()).or_default().push(chooser);
            }
        }
        let mut changed: Vec<u32> = choosers.keys().filter_map(|&element| position(element)).collect();
        changed.extend(&order);
        changed.sort_unstable();
        changed.dedup();
        let choosing = Choosing { order: &changed, ..choosing };
        let again = choosing.run(space, pool, control, |scratch: &mut Scratch, Turn { at, resolved, .. }, list| {
            let (point, Scratch { candidates, selector, .. }) = (points[at], scratch);
            candidates.clear();
            match order.binary_search(&(at as u32)) {
                Ok(place) => candidates.extend(chosen.list(place)),
                Err(_) => candidates.extend(before.neighbors(point, 0).iter().map(|&it| space.candidate(point, it))),
            }
            candidates.extend(choosers.get(&point).into_iter().flatten());
            keep_distinct(candidates, usize::MAX);
            selector.choose(Rule { space, wanted: choosing.width, resolved }, point, candidates, list)
        })?;
        (0..changed.len()).for_each(|place| {
            let list = again.list(place).map(|near| near.element());
            draft.set(choosing.at(place), 0, list);
        });
        Ok(())
    }

    /// Searches for a point from the entry point, and chooses from the visited elements and the point's neighbors.
    fn choose_from_path(
        self,
        before: &Draft,
        layer: u8,
        choosing: Choosing<'_>,
        Turn { at, resolved, .. }: Turn,
        scratch: &mut Scratch,
        list: &mut Vec<Candidate>,
    ) -> usize {
        let Scratch { searcher, expanded, candidates, selector, query } = scratch;
        let point = choosing.points[at];
        let known = before.neighbors(point, layer);
        let space = self.space.trusted(point, known);
        let mut distances = space.distances_from(query, point);
        expanded.clear();
        candidates.clear();
        let from = searcher.descend(before, &mut distances, |_| {}, layer);
        let ef = EF.min(self.ef_construction.into());
        candidates.extend(searcher.layer(before, &mut distances, |element| expanded.push(element), &from, ef, layer));
        let others = expanded.iter().chain(known);
        candidates.extend(others.map(|&other| Candidate::new(distances.of(other), other)));
        candidates.retain(|candidate| candidate.element() != point);
        keep_distinct(candidates, usize::MAX);
        let wanted = choosing.width.min(choosing.points.len() - 1);
        selector.choose(Rule { space, wanted, resolved }, point, candidates, list)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Navigation, may_mend, one_of};
    use crate::Control;
    use crate::draft::Draft;
    use crate::input::ValueStore;
    use crate::testing::{euclidean, pool, reached, store};

    #[test]
    fn fewer_searches_for_large_tables_and_cheap_graphs() {
        assert_eq!([50_000, 50_001, 200_001].map(|points| one_of(points, 64)), [1, 2, 4]);
        assert_eq!([one_of(1000, 32), one_of(1000, 33)], [4, 1]);
        assert_eq!([400_000, 400_001, 1_000_000].map(|points| one_of(points, 64)), [4, 5, 10]);
    }

    #[test]
    fn small_losses_of_large_tables_are_not_worth_the_searches() {
        assert!(may_mend(0.013, 50_000) && may_mend(0.013, 200_000) && may_mend(0.15, 1_000_000));
        assert!(!may_mend(0.011, 200_000) && !may_mend(0.02, 500_000) && !may_mend(0.1, 1_000_000));
    }

    const GROUP: u32 = 20;

    /// Two groups on a line, whose lists hold points of their own group. The entry point is in the first.
    fn island() -> (Vec<u32>, Arc<ValueStore>, Draft) {
        let point = |at: u32| [(at / GROUP * 100) as f32 + (at % GROUP) as f32 * 0.1];
        let points: Vec<u32> = (0..2 * GROUP).collect();
        let store = store(&points.iter().map(|&at| point(at)).collect::<Vec<_>>());
        let mut levels = vec![0; points.len()];
        (levels[3], levels[10]) = (1, 1);
        let mut draft = Draft::new(4, levels);
        for &at in &points {
            let near = (1..=4).flat_map(|step| [at.wrapping_sub(step), at + step]);
            draft.set(at, 0, near.filter(|other| points.contains(other) && other / GROUP == at / GROUP));
        }
        draft.set(3, 1, [10]);
        draft.set(10, 1, [3]);
        assert_eq!(reached(&draft, 3), GROUP as usize);
        (points, store, draft)
    }

    #[test]
    fn an_island_gets_links_from_and_to_the_search_path() {
        let (points, store, mut draft) = island();
        let (space, control) = (euclidean::<1>(&store), Control::default());
        let pool = pool();
        let navigation = Navigation::new(64, space, &pool, &control);
        navigation.improve(&mut draft, (&points, &points)).unwrap();
        assert_eq!(reached(&draft, 3), points.len());
        let (_, done, total) = control.progress().get();
        assert_eq!((done, total), (4 * u64::from(GROUP), 4 * u64::from(GROUP)));
        // The ends that face each other, and the nearest of their own groups.
        assert!(draft.neighbors(20, 0).contains(&19) && draft.neighbors(19, 0).contains(&20));
        assert_eq!([draft.neighbors(20, 0)[0], draft.neighbors(19, 0)[0]], [21, 18]);
        assert_eq!([draft.neighbors(3, 1), draft.neighbors(10, 1)], [[10], [3]]);
    }

    #[test]
    fn a_trial_changes_only_sought_elements_and_their_neighbors() {
        let (points, store, mut draft) = island();
        let (space, pool, control) = (euclidean::<1>(&store), pool(), Control::default());
        let before = draft.copy(&control).unwrap();
        let navigation = Navigation::new(64, space, &pool, &control);
        navigation.try_for(&mut draft, &points, &[GROUP]).unwrap();
        assert_eq!(reached(&draft, 3), points.len());
        assert!(draft.neighbors(GROUP, 0).contains(&19) && draft.neighbors(19, 0).contains(&GROUP));
        let may_change = |at: u32| at == GROUP || draft.neighbors(GROUP, 0).contains(&at);
        for &at in points.iter().filter(|&&at| !may_change(at)) {
            assert_eq!(draft.neighbors(at, 0), before.neighbors(at, 0), "{at} was not sought, nor chosen");
        }
        assert_eq!(draft.neighbors(10, 1), before.neighbors(10, 1));
        assert_eq!(control.progress().get().2, 0, "it is no part of the build's progress");
        let linked = draft.copy(&control).unwrap();
        navigation.try_for(&mut draft, &points, &[]).unwrap();
        assert!(points.iter().all(|&at| draft.neighbors(at, 0) == linked.neighbors(at, 0)), "nothing was sought");
    }
}
