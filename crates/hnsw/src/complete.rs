//! Fills neighbor lists at layer 0.
//!
//! pgvector keeps every layer-0 list full, with the nearest of the candidates that its diversity rule had dropped, and VACUUM
//! rebuilds the lists that are not. So what an engine's rule left empty gets the nearest elements that the rest of the graph knows of.

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::{Draft, used};
use crate::finish::Space;
use crate::rows::TakenRows;
use crate::{BuildError, Control, Pool};

/// Candidates looked at for each empty slot.
const PER_SLOT: usize = 6;
/// And at least so many: neighbors of the nearest neighbors.
const AT_LEAST: usize = 48;

/// Sorts every list by distance and fills it up to `2 * m`, or to all other elements; copies are left for later.
pub(crate) fn fill(
    draft: &mut Draft,
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
            fill_one(draft, taken, space, element, others, slots);
        }
        control.progress().add(1);
        Ok(())
    };
    pool.run(|| filled.par_chunks_mut(width).enumerate().try_for_each(list))?;
    draft.set_layer0(filled);
    Ok(())
}

fn fill_one(draft: &Draft, taken: &TakenRows, space: Space<'_>, element: u32, others: usize, slots: &mut [u32]) {
    let mut list = by_distance(space, element, draft.neighbors(element, 0).iter().copied());
    let wanted = slots.len().min(others - 1);
    if list.len() < wanted {
        let mut known: Vec<u32> = list.iter().map(|&(_, neighbor)| neighbor).collect();
        let own = known.len();
        let target = own + AT_LEAST.max(PER_SLOT * (wanted - own));
        spread(draft, element, target, &mut known);
        if known.len() < wanted {
            everybody(taken, element, others, wanted, &mut known);
        }
        list.extend(by_distance(space, element, known.drain(own..)).into_iter().take(wanted - own));
        list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
    for (slot, (_, neighbor)) in slots.iter_mut().zip(list) {
        *slot = neighbor;
    }
}

/// Breadth first from what is known, nearest lists first, until `target` elements are known or there are no more.
fn spread(draft: &Draft, element: u32, target: usize, known: &mut Vec<u32>) {
    let mut at = 0;
    while at < known.len() && known.len() < target {
        for &next in used(draft.slots(known[at], 0)) {
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
