//! The second choice of neighbors: among those that were chosen, and those that chose.
//!
//! Nearness is not mutual. Where vectors differ in length, or lie in a dense place's outskirts, a few in the middle are near
//! everybody and know only each other: no path leads outwards. So each element also considers all those that chose it, as
//! insertion does with its links back; whatever they are, the diversity rule decides.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::candidates::{self, Candidate};
use crate::draft::{self, Draft};
use crate::select::Selector;
use crate::space::Space;
use crate::{BuildError, Control, Pool};

/// Who chose whom at one layer, by position in its points.
struct Choosers {
    starts: Vec<usize>,
    choosers: Vec<u32>,
}

#[derive(Default)]
struct Scratch {
    elements: Vec<u32>,
    candidates: Vec<Candidate>,
    list: Vec<u32>,
    selector: Selector,
}

/// Chooses the neighbors of `points` anew, in `order`. Returns for each position how many of them the diversity rule chose.
pub(crate) fn choose_again(
    draft: &mut Draft,
    layer: u8,
    points: &[u32],
    order: &[u32],
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<Vec<u16>, BuildError> {
    let width = draft.width(layer);
    let mut lists = vec![graph::NO_NEIGHBOR; points.len() * width];
    let mut counts = vec![0; points.len()];
    let (before, choosers) = (&*draft, pool.run(|| Choosers::new(draft, layer, points)));
    let choose = |scratch: &mut Scratch, ((slots, count), &at): ((&mut [u32], &mut u16), &u32)| {
        control.check()?;
        let point = points[at as usize];
        let Scratch { elements, candidates, list, selector } = scratch;
        elements.clear();
        elements.extend(before.neighbors(point, layer));
        elements.extend(choosers.of(at).iter().map(|&chooser| points[chooser as usize]));
        if layer == 0 {
            // Links over longer ways, for those that have any.
            elements.extend((1..=before.level(point)).flat_map(|layer| before.neighbors(point, layer)));
        }
        elements.sort_unstable();
        elements.dedup();
        candidates.clear();
        candidates.extend(elements.iter().map(|&other| (space.distance(point, other), other)));
        candidates.sort_unstable_by(candidates::order);
        *count = selector.choose(space, point, candidates, width, list) as u16;
        slots[..list.len()].copy_from_slice(list);
        control.progress().add(1);
        Ok(())
    };
    pool.run(|| lists.par_chunks_mut(width).zip(&mut counts).zip(order).try_for_each_init(Scratch::default, choose))?;
    let mut chosen = vec![0; points.len()];
    for ((&at, list), count) in order.iter().zip(lists.chunks_exact(width)).zip(counts) {
        draft.set(points[at as usize], layer, draft::used(list).iter().copied());
        chosen[at as usize] = count;
    }
    Ok(chosen)
}

impl Choosers {
    fn new(draft: &Draft, layer: u8, points: &[u32]) -> Self {
        let mut positions = vec![0; draft.len()];
        (0u32..).zip(points).for_each(|(at, &point)| positions[point as usize] = at);
        let chosen_by = |point: u32| draft.neighbors(point, layer).iter().map(|&other| positions[other as usize]);
        let counts: Vec<AtomicUsize> = (0..=points.len()).map(|_| AtomicUsize::new(0)).collect();
        points.par_iter().for_each(|&point| {
            chosen_by(point).for_each(|other| _ = counts[other as usize].fetch_add(1, Ordering::Relaxed));
        });
        let mut starts: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
        let mut total = 0;
        starts.iter_mut().for_each(|start| (*start, total) = (total, total + *start));
        let next: Vec<AtomicUsize> = starts.iter().map(|&start| AtomicUsize::new(start)).collect();
        let slots: Vec<AtomicU32> = (0..total).map(|_| AtomicU32::new(0)).collect();
        (0u32..points.len() as u32).into_par_iter().for_each(|at| {
            for other in chosen_by(points[at as usize]) {
                let slot = next[other as usize].fetch_add(1, Ordering::Relaxed);
                slots[slot].store(at, Ordering::Relaxed);
            }
        });
        Self { starts, choosers: slots.into_iter().map(AtomicU32::into_inner).collect() }
    }

    /// In no particular order.
    fn of(&self, at: u32) -> &[u32] {
        &self.choosers[self.starts[at as usize]..self.starts[at as usize + 1]]
    }
}
