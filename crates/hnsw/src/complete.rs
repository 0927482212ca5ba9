//! Chooses the neighbors at layer 0 from what an engine found.
//!
//! pgvector keeps every layer-0 list full, with the nearest of the candidates that its diversity rule had dropped, and VACUUM
//! rebuilds the lists that are not. So where an engine found too little, the candidates' own candidates are looked at as well.

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::candidates::{self, Candidate, Candidates};
use crate::draft::Draft;
use crate::select::Selector;
use crate::space::Space;
use crate::{BuildError, Control, Pool, balance};

/// What an engine found.
pub(crate) struct Gathered {
    /// All elements but copies, in ascending order.
    pub(crate) points: Vec<u32>,
    /// The positions in `points`, near ones next to each other: their candidates are read from memory once.
    pub(crate) order: Vec<u32>,
    pub(crate) candidates: Candidates,
    /// With fewer candidates than this the neighborhood is searched for more.
    pub(crate) at_least: usize,
}

/// Chooses every point's neighbors at layer 0: `2 * m`, or all other points if there are fewer.
pub(crate) fn fill(
    draft: &mut Draft,
    found: &Gathered,
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<(), BuildError> {
    let width = 2 * draft.m();
    let mut lists = vec![NO_NEIGHBOR; found.points.len() * width];
    let mut counts = vec![0; found.points.len()];
    let choose = |scratch: &mut Scratch, ((slots, count), &at): ((&mut [u32], &mut u16), &u32)| {
        control.check()?;
        *count = found.choose(space, at as usize, slots, scratch) as u16;
        control.progress().add(1);
        Ok(())
    };
    pool.run(|| {
        lists.par_chunks_mut(width).zip(&mut counts).zip(&found.order).try_for_each_init(Scratch::default, choose)
    })?;
    let mut chosen = vec![0; draft.len()];
    for ((&at, list), count) in found.order.iter().zip(lists.chunks_exact(width)).zip(counts) {
        let point = found.points[at as usize];
        draft.slots_mut(point, 0).copy_from_slice(list);
        chosen[point as usize] = count;
    }
    drop(lists);
    balance::spread_links(draft, found, &chosen, control)
}

#[derive(Default)]
struct Scratch {
    candidates: Vec<Candidate>,
    more: Vec<Candidate>,
    list: Vec<u32>,
    selector: Selector,
}

impl Gathered {
    fn choose(&self, space: Space<'_>, at: usize, slots: &mut [u32], scratch: &mut Scratch) -> usize {
        let wanted = slots.len().min(self.points.len() - 1);
        let Scratch { candidates, more, list, selector } = scratch;
        candidates.clear();
        self.candidates.of(at, candidates);
        if candidates.len() < self.at_least.max(wanted) {
            self.spread(space, at, self.at_least.max(2 * wanted), candidates, more);
            if candidates.len() < wanted {
                self.everybody(space, at, wanted, candidates);
            }
            candidates.sort_unstable_by(candidates::order);
        }
        let chosen = selector.choose(space, self.points[at], candidates, wanted, list);
        for (slot, &neighbor) in slots.iter_mut().zip(&*list) {
            *slot = neighbor;
        }
        chosen
    }

    /// Breadth first from what is known, nearest first, until `target` elements are known or there are no more.
    fn spread(
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
            let Ok(local) = self.points.binary_search(&known[next].1) else { return };
            more.clear();
            self.candidates.of(local, more);
            for &(_, other) in &*more {
                if other != element && known.iter().all(|&(_, known)| known != other) {
                    known.push((space.distance(element, other), other));
                }
            }
            next += 1;
        }
    }

    /// For a point in a small separate part of the graph: any others.
    fn everybody(&self, space: Space<'_>, at: usize, wanted: usize, known: &mut Vec<Candidate>) {
        let element = self.points[at];
        // Start behind the point, so that not all such points take the same ones.
        for &other in self.points[at + 1..].iter().chain(&self.points[..at]) {
            if known.len() >= wanted {
                return;
            }
            if known.iter().all(|&(_, known)| known != other) {
                known.push((space.distance(element, other), other));
            }
        }
    }
}
