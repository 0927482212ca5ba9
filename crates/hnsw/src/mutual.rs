//! The second choice of neighbors: among those that were chosen, and those that chose.
//!
//! Nearness is not mutual. Where vectors differ in length, or lie in a dense place's outskirts, a few in the middle are near
//! everybody and know only each other: no path leads outwards. So each element also considers all those that chose it, as
//! insertion does with its links back; whatever they are, the diversity rule decides.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::candidate::Candidate;
use crate::draft::Draft;
use crate::select::{Rule, Selector};
use crate::{BuildError, Control, Pool, round};

/// Who chose whom at one layer, by position in its points.
struct Choosers {
    starts: Vec<usize>,
    choosers: Vec<u32>,
}

#[derive(Default)]
struct Scratch {
    elements: Vec<u32>,
    candidates: Vec<Candidate>,
    selector: Selector,
}

/// Chooses the neighbors of `points` anew, in `order`. Returns for each position how many of them the diversity rule chose.
pub(crate) fn choose_again(
    draft: &mut Draft,
    layer: u8,
    points: &[u32],
    order: &[u32],
    rule: Rule<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<Vec<u16>, BuildError> {
    let choosers = pool.run(|| Choosers::new(draft, layer, points));
    let choose = |before: &Draft, scratch: &mut Scratch, at: usize, list: &mut Vec<u32>| {
        let point = points[at];
        let Scratch { elements, candidates, selector } = scratch;
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
        candidates.extend(elements.iter().map(|&other| rule.space.candidate(point, other)));
        selector.choose(rule, point, candidates, list)
    };
    Ok(round::choose_all(draft, layer, points, order, pool, control, choose)?.place(draft, layer))
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
    fn of(&self, at: usize) -> &[u32] {
        &self.choosers[self.starts[at]..self.starts[at + 1]]
    }
}
