//! The reverse-edge pass, the second round of selection: each element selects again, among the neighbors that it chose and the elements
//! that chose it.
//!
//! Being a nearest neighbor is not mutual. If vectors differ in norm, or around a dense region, a few central elements are near all others
//! but choose only each other: no path leads outwards. So each element also considers the elements that chose it, like insertion with its
//! reverse links; the diversity rule decides.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use distance::Candidate;
use rayon::prelude::*;

use super::round::{Choosing, Chosen, Turn};
use super::rule::{Rule, Selector};
use crate::candidates::keep_distinct;
use crate::draft::Draft;
use crate::space::Space;
use crate::tasks::ranges;
use crate::{BuildError, Control, Pool};

/// Candidates kept, in list widths: a central element is chosen by hundreds of elements and can use few of them.
const MOST: usize = 3;

/// Reverse edges per block of memory. Each block is allocated and zeroed by one task.
const BLOCK: usize = 1 << 14;

/// Reverse edges: for each element of a layer, by its place in the order, the elements that chose it, with distances. Near elements choose
/// each other, so that a thread that follows the order reads few pages of memory.
struct Choosers {
    starts: Vec<usize>,
    /// Packed candidates, in blocks of `BLOCK`.
    choosers: Vec<Vec<AtomicU64>>,
}

#[derive(Default)]
struct Scratch {
    candidates: Vec<Candidate>,
    selector: Selector,
}

/// Every point selects again. `draft` has the lists of the layers above.
pub(crate) fn choose_again<'a>(
    before: &Chosen<'a>,
    draft: &Draft,
    layer: u8,
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<Chosen<'a>, BuildError> {
    let choosing = Choosing { name: "second selection", ..before.round() };
    let choosers = pool.run(|| Choosers::new(before, control))?;
    let chosen = choosing.run(space, pool, control, |scratch: &mut Scratch, Turn { place, at, resolved }, list| {
        let point = choosing.points[at];
        let Scratch { candidates, selector } = scratch;
        candidates.clear();
        candidates.extend(before.list(place));
        candidates.extend(choosers.of(place));
        // All points may have chosen this one, and each is here at most twice.
        let enough = 2 * MOST * choosing.width;
        if candidates.len() > 2 * enough {
            candidates.select_nth_unstable(enough);
            candidates.truncate(enough);
        }
        keep_distinct(candidates, MOST * choosing.width);
        if layer == 0 && draft.level(point) > 0 {
            // The neighbors on upper layers are longer links.
            for &other in (1..=draft.level(point)).flat_map(|layer| draft.neighbors(point, layer)) {
                if candidates.iter().all(|known| known.element() != other) {
                    candidates.push(space.candidate(point, other));
                }
            }
            candidates.sort_unstable();
        }
        selector.choose(Rule { space, wanted: choosing.width, resolved }, point, candidates, list)
    })?;
    pool.run(|| choosers.free(control))?;
    Ok(chosen)
}

impl Choosers {
    fn new(chosen: &Chosen<'_>, control: &Control) -> Result<Self, BuildError> {
        let (points, order) = (chosen.round().points, chosen.round().order);
        let place_of = chosen.round().places(control)?;
        let place_of = |chosen: Candidate| place_of[chosen.element() as usize] as usize;
        let counts: Vec<AtomicUsize> = (0..=points.len()).map(|_| AtomicUsize::new(0)).collect();
        control.section("choosers counted").for_each(ranges(order.len()), |range| {
            let others = range.flat_map(|place| chosen.list(place));
            others.for_each(|other| _ = counts[place_of(other)].fetch_add(1, Ordering::Relaxed));
            Ok(())
        })?;
        let mut starts: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
        let mut total = 0;
        starts.iter_mut().for_each(|start| (*start, total) = (total, total + *start));
        let next: Vec<AtomicUsize> = starts.iter().map(|&start| AtomicUsize::new(start)).collect();
        let block = |_| Ok((0..BLOCK).map(|_| AtomicU64::new(0)).collect());
        let blocks = (0..total.div_ceil(BLOCK)).into_par_iter();
        let choosers: Vec<Vec<AtomicU64>> = control.section("room for choosers").map(blocks, block)?;
        control.section("choosers").for_each_init(ranges(order.len()), |slots: &mut Vec<usize>, range| {
            for place in range {
                let (list, chooser) = (chosen.list(place), points[order[place] as usize]);
                // Reserve all slots before writing to any: an atomic increment waits for earlier writes.
                slots.clear();
                slots.extend(list.clone().map(|other| next[place_of(other)].fetch_add(1, Ordering::Relaxed)));
                for (other, &slot) in list.zip(&*slots) {
                    let chooser = Candidate::new(other.distance(), chooser);
                    choosers[slot / BLOCK][slot % BLOCK].store(chooser.to_bits(), Ordering::Relaxed);
                }
            }
            Ok(())
        })?;
        Ok(Self { starts, choosers })
    }

    fn free(self, control: &Control) -> Result<(), BuildError> {
        control.section("reverse edges freed").for_each(self.choosers.into_par_iter(), |block| {
            drop(block);
            Ok(())
        })
    }

    /// The elements that chose the one at a place, in no particular order.
    fn of(&self, place: usize) -> impl Iterator<Item = Candidate> {
        let chooser = |slot: usize| self.choosers[slot / BLOCK][slot % BLOCK].load(Ordering::Relaxed);
        (self.starts[place]..self.starts[place + 1]).map(move |slot| Candidate::from_bits(chooser(slot)))
    }
}

#[cfg(test)]
mod tests {
    use distance::Candidate;

    use super::{Choosers, choose_again};
    use crate::Control;
    use crate::draft::Draft;
    use crate::select::Choosing;
    use crate::testing::{euclidean, pool, store};

    #[test]
    fn an_element_considers_those_that_chose_it() {
        // All choose 0, which chose nobody.
        let store = store(&[[0.0], [4.0], [2.0], [-3.0], [1.0]]);
        let (space, pool, control) = (euclidean::<1>(&store), pool(), Control::default());
        let points: Vec<u32> = (0..5).collect();
        let order = [3, 0, 4, 2, 1];
        let choosing = Choosing { points: &points, order: &order, width: 4, name: "choice", counted: false };
        let chosen = choosing.run(space, &pool, &control, |(): &mut (), turn, list: &mut Vec<Candidate>| {
            list.clear();
            list.extend((turn.at != 0).then(|| space.candidate(turn.at as u32, 0)));
            list.len()
        });
        let chosen = chosen.unwrap();
        reverse_links_fit_the_memory_estimate(&Choosers::new(&chosen, &control).unwrap());
        let mut draft = Draft::new(2, vec![0; 5]);
        let again = choose_again(&chosen, &draft, 0, space, &pool, &control).unwrap();
        let by_rule = again.place(&mut draft, 0, &control).unwrap();
        assert_eq!(draft.neighbors(0, 0), [4, 2, 3, 1], "nearest first");
        assert!((1..5).all(|element| draft.neighbors(element, 0) == [0]));
        assert_eq!(by_rule, [4, 1, 1, 1, 1]);
    }

    fn reverse_links_fit_the_memory_estimate(choosers: &Choosers) {
        fn each<T>(_: &[T]) -> u64 {
            size_of::<T>() as u64
        }
        assert_eq!(each(&choosers.choosers[0]), pages::sizes::CANDIDATE);
        // Where the links of an element begin, the next free slot while they are collected, and its place in the order.
        assert!(2 * each(&choosers.starts) + size_of::<u32>() as u64 <= pages::sizes::REVERSE);
    }
}
