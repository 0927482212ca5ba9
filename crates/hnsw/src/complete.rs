//! Chooses the neighbors at layer 0 from what an engine found.
//!
//! pgvector keeps every layer-0 list full, with the nearest of the candidates that its diversity rule had dropped, and VACUUM
//! rebuilds the lists that are not. So where an engine found too little, the candidates' own candidates are looked at as well.

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::{Draft, used};
use crate::finish::Space;
use crate::rows::TakenRows;
use crate::{BuildError, Control, Pool, select};

/// Elements looked at for a list, if the engine found fewer: neighbors of the nearest neighbors.
const AT_LEAST: usize = 128;

/// What an engine found at layer 0: for each element, elements that are near it, in any number up to a fixed one.
pub(crate) struct Candidates {
    width: usize,
    slots: Vec<u32>,
}

impl Candidates {
    pub(crate) fn new(elements: usize, width: usize) -> Self {
        Self { width, slots: vec![NO_NEIGHBOR; elements * width] }
    }

    pub(crate) fn set(&mut self, element: u32, candidates: impl IntoIterator<Item = u32>) {
        let start = element as usize * self.width;
        for (slot, candidate) in self.slots[start..start + self.width].iter_mut().zip(candidates) {
            *slot = candidate;
        }
    }

    fn of(&self, element: u32) -> &[u32] {
        let start = element as usize * self.width;
        used(&self.slots[start..start + self.width])
    }
}

/// Chooses every element's neighbors at layer 0: `2 * m`, or all others if there are fewer; copies are left for later.
pub(crate) fn fill(
    draft: &mut Draft,
    found: &Candidates,
    taken: &TakenRows,
    space: Space<'_>,
    pool: &Pool,
    control: &Control,
) -> Result<(), BuildError> {
    let width = 2 * draft.m();
    let mut filled = vec![NO_NEIGHBOR; draft.layer0().len()];
    let others = draft.len() - taken.copies.len();
    let list = |(element, slots): (usize, &mut [u32])| {
        let element = element as u32;
        control.check()?;
        if !taken.is_copy(element) {
            fill_one(found, taken, space, element, others, slots);
        }
        control.progress().add(1);
        Ok(())
    };
    pool.run(|| filled.par_chunks_mut(width).enumerate().try_for_each(list))?;
    draft.set_layer0(filled);
    Ok(())
}

fn fill_one(found: &Candidates, taken: &TakenRows, space: Space<'_>, element: u32, others: usize, slots: &mut [u32]) {
    let wanted = slots.len().min(others - 1);
    let mut known = found.of(element).to_vec();
    spread(found, element, AT_LEAST.max(2 * wanted), &mut known);
    if known.len() < wanted {
        everybody(taken, element, others, wanted, &mut known);
    }
    let candidates = by_distance(space, element, known.drain(..));
    select::diverse(space, &candidates, wanted, &mut known);
    for (slot, neighbor) in slots.iter_mut().zip(known) {
        *slot = neighbor;
    }
}

/// Breadth first from what is known, nearest lists first, until `target` elements are known or there are no more.
fn spread(found: &Candidates, element: u32, target: usize, known: &mut Vec<u32>) {
    let mut at = 0;
    while at < known.len() && known.len() < target {
        for &next in found.of(known[at]) {
            if next != element && !known.contains(&next) {
                known.push(next);
            }
        }
        at += 1;
    }
}

/// For an element in a small separate part of the graph: any others.
fn everybody(taken: &TakenRows, element: u32, others: usize, wanted: usize, known: &mut Vec<u32>) {
    let elements = (others + taken.copies.len()) as u32;
    // Start behind the element, so that not all such elements take the same ones.
    let candidates = (element + 1..elements).chain(0..element);
    for other in candidates.filter(|&other| !taken.is_copy(other)) {
        if known.len() >= wanted {
            return;
        }
        if !known.contains(&other) {
            known.push(other);
        }
    }
}

fn by_distance(space: Space<'_>, element: u32, others: impl Iterator<Item = u32>) -> Vec<(f32, u32)> {
    let mut list: Vec<_> = others.map(|other| (space.distance(element, other), other)).collect();
    list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    list
}
