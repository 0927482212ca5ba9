//! The second choice of neighbors: among those that were chosen, and those that chose.
//!
//! Nearness is not mutual. Where vectors differ in length, or lie in a dense place's outskirts, a few in the middle are near
//! everybody and know only each other: no path leads outwards. So each element also considers all those that chose it, as
//! insertion does with its links back; whatever they are, the diversity rule decides.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use distance::Candidate;
use rayon::prelude::*;

use crate::candidates::distinct;
use crate::draft::Draft;
use crate::round::{Chosen, Turn};
use crate::select::{Rule, Selector};
use crate::space::Space;
use crate::{BuildError, Control, Pool};

/// For each element of a layer, by position, those that chose it and how far they are.
struct Choosers {
    starts: Vec<usize>,
    choosers: Vec<Candidate>,
}

#[derive(Default)]
struct Scratch {
    candidates: Vec<Candidate>,
    selector: Selector,
}

/// All points choose again. `draft` has the layers above.
pub(crate) fn choose_again<'a>(
    before: &Chosen<'a>,
    draft: &Draft,
    layer: u8,
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<Chosen<'a>, BuildError> {
    let choosing = before.by();
    let choosers = pool.run(|| Choosers::new(before));
    choosing.run(space, pool, control, |scratch: &mut Scratch, Turn { place, at, told }, list| {
        let point = choosing.points[at];
        let Scratch { candidates, selector } = scratch;
        candidates.clear();
        candidates.extend_from_slice(before.list(place));
        candidates.extend_from_slice(choosers.of(at));
        if layer == 0 {
            // Links over longer ways, for those that have any.
            for &other in (1..=draft.level(point)).flat_map(|layer| draft.neighbors(point, layer)) {
                if candidates.iter().all(|known| known.element() != other) {
                    candidates.push(space.candidate(point, other));
                }
            }
        }
        candidates.sort_unstable();
        let count = distinct(candidates, usize::MAX);
        selector.choose(Rule { space, wanted: choosing.width, told }, point, &candidates[..count], list)
    })
}

impl Choosers {
    fn new(chosen: &Chosen<'_>) -> Self {
        let (points, order) = (chosen.by().points, chosen.by().order);
        let mut positions = vec![0; points.last().map_or(0, |&last| last as usize + 1)];
        (0u32..).zip(points).for_each(|(at, &point)| positions[point as usize] = at);
        let position = |chosen: &Candidate| positions[chosen.element() as usize] as usize;
        let places = || (0..order.len()).into_par_iter();
        let counts: Vec<AtomicUsize> = (0..=points.len()).map(|_| AtomicUsize::new(0)).collect();
        places().for_each(|place| {
            chosen.list(place).iter().for_each(|other| _ = counts[position(other)].fetch_add(1, Ordering::Relaxed));
        });
        let mut starts: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
        let mut total = 0;
        starts.iter_mut().for_each(|start| (*start, total) = (total, total + *start));
        let next: Vec<AtomicUsize> = starts.iter().map(|&start| AtomicUsize::new(start)).collect();
        let slots: Vec<AtomicU64> = (0..total).into_par_iter().map(|_| AtomicU64::new(0)).collect();
        places().for_each(|place| {
            let chooser = points[order[place] as usize];
            for other in chosen.list(place) {
                let slot = next[position(other)].fetch_add(1, Ordering::Relaxed);
                slots[slot].store(Candidate::new(other.distance(), chooser).to_bits(), Ordering::Relaxed);
            }
        });
        let choosers = slots.into_iter().map(|slot| Candidate::from_bits(slot.into_inner())).collect();
        Self { starts, choosers }
    }

    /// In no particular order.
    fn of(&self, at: usize) -> &[Candidate] {
        &self.choosers[self.starts[at]..self.starts[at + 1]]
    }
}
