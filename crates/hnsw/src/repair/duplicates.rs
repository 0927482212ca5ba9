//! Links elements of the same value: more than ten duplicates need several elements.
//!
//! By distance alone they would link only to each other, and the diversity rule would cut even these links. So some slots of each list are
//! for a ring with chords among the duplicates, and the others for elements of other values. A few duplicates all get the neighbors of the
//! first. Many duplicates fill all results of a search, which can leave the group only by their links: so each gets a different part of
//! the neighbors of the first, and of those neighbors' neighbors.

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::Draft;
use crate::input::TakenRows;
use crate::{BuildError, Control};

/// Slots for the ring in the lists of many duplicates.
const RING: usize = 4;

/// The neighbors of neighbors that many duplicates divide among them, in list widths. Of 500 searches among a thousand values with 200 rows
/// each, 433 found the nearest value with 2 list widths, and more than 475 with 8.
const FURTHER: usize = 8;

/// Sets the final lists at layer 0 of all elements with equal values, and fills lists that are short because there are few distinct values.
/// Runs on the threads of the pool it is called from.
pub(crate) fn link(draft: &mut Draft, taken: &TakenRows, control: &Control) -> Result<(), BuildError> {
    let mut pairs: Vec<_> = taken.duplicates.iter().map(|&(duplicate, first)| (first, duplicate)).collect();
    pairs.sort_unstable();
    let width = 2 * draft.m();
    let groups: Vec<&[(u32, u32)]> = pairs.chunk_by(|a, b| a.0 == b.0).collect();
    // Before any list changes: the neighbors may have duplicates themselves.
    let further = |pairs: &&[(u32, u32)]| {
        control.check()?;
        Ok(if is_large(1 + pairs.len(), width) { further_out(draft, pairs[0].0, width) } else { Vec::new() })
    };
    let further = groups.par_iter().map(further).collect::<Result<Vec<_>, BuildError>>()?;
    for (pairs, further) in groups.into_iter().zip(further) {
        let first = pairs[0].0;
        let group: Vec<u32> = std::iter::once(first).chain(pairs.iter().map(|&(_, duplicate)| duplicate)).collect();
        let outside = draft.neighbors(first, 0).to_vec();
        for at in 0..group.len() {
            control.check()?;
            let list = list_of(&group, at, (&outside, &further), width);
            draft.set(group[at], 0, list);
        }
    }
    fill_short(draft, taken);
    Ok(())
}

/// Whether a ring among the duplicates would take half of the slots.
fn is_large(duplicates: usize, width: usize) -> bool {
    duplicates > width / 2
}

/// Neighbors of an element's neighbors: the nearest of each, then the second of each, and so on; about [`FURTHER`] lists of them.
fn further_out(draft: &Draft, element: u32, width: usize) -> Vec<u32> {
    let near = draft.neighbors(element, 0);
    let mut further = Vec::with_capacity((FURTHER + 1) * width);
    for rank in 0..width {
        for &neighbor in near {
            match draft.neighbors(neighbor, 0).get(rank) {
                Some(&other) if other != element && !near.contains(&other) && !further.contains(&other) => {
                    further.push(other);
                }
                _ => {}
            }
        }
        if further.len() >= FURTHER * width {
            break;
        }
    }
    further
}

/// The list of the duplicate at a position: links along the ring, then links to `outside`, the neighbors of the first duplicate, or, if
/// duplicates are many, to its part of `outside` and of `further`, their neighbors. Slots left over go to the group, then to `outside`.
fn list_of(group: &[u32], at: usize, (outside, further): (&[u32], &[u32]), width: usize) -> Vec<u32> {
    let (ring, others) = if is_large(group.len(), width) {
        let ring = RING.min(width / 2);
        let each = (width - ring).div_ceil(2);
        let part = |all: &[u32]| {
            all.iter().cycle().skip(at * each % all.len().max(1)).take(each.min(all.len())).copied().collect()
        };
        let parts: [Vec<u32>; 2] = [part(outside), part(further)];
        (ring, parts.concat())
    } else {
        (width / 2, outside.to_vec())
    };
    let mut list = Vec::with_capacity(width);
    let from_group = width - others.len().min(width - ring);
    for distance in chords(group.len()) {
        if list.len() == from_group {
            break;
        }
        for member in [group[(at + distance) % group.len()], group[(at + group.len() - distance) % group.len()]] {
            if list.len() < from_group && member != group[at] && !list.contains(&member) {
                list.push(member);
            }
        }
    }
    // A group just above the limit may have fewer members than slots left over.
    for &other in others.iter().chain(outside) {
        if list.len() == width {
            break;
        }
        if !list.contains(&other) {
            list.push(other);
        }
    }
    list
}

/// Distances along the ring: powers of two first, so that any member of a small group is reached in few steps, then 1, 2 and so on, enough for
/// the longest list.
fn chords(len: usize) -> impl Iterator<Item = usize> {
    let powers = (0..usize::BITS).map(|bit| 1 << bit).take_while(move |&distance| distance < len);
    powers.chain((1..len).take(2 * 100))
}

/// If there are fewer values than slots, fills lists with any elements.
fn fill_short(draft: &mut Draft, taken: &TakenRows) {
    let wanted = (2 * draft.m()).min(draft.len().saturating_sub(1));
    let firsts = draft.len() - taken.duplicates.len();
    if firsts > 2 * draft.m() {
        return;
    }
    let elements = draft.len() as u32;
    for element in 0..elements {
        let mut list = draft.neighbors(element, 0).to_vec();
        for other in (element + 1..elements).chain(0..element) {
            if list.len() >= wanted {
                break;
            }
            if !list.contains(&other) {
                list.push(other);
            }
        }
        debug_assert!(!list.contains(&NO_NEIGHBOR));
        draft.set(element, 0, list);
    }
}

#[cfg(test)]
mod tests {
    use super::list_of;

    #[test]
    fn many_duplicates_link_to_different_others() {
        let group: Vec<u32> = (100..200).collect();
        let (outside, further): (Vec<u32>, Vec<u32>) = ((0..32).collect(), (32..96).collect());
        let lists: Vec<Vec<u32>> = (0..100).map(|at| list_of(&group, at, (&outside, &further), 32)).collect();
        for list in &lists {
            assert_eq!((list.len(), list.iter().filter(|&&e| e < 32).count()), (32, 14));
            assert_eq!(list.iter().filter(|&&e| e >= 100).count(), 4);
        }
        assert!(lists[3].contains(&104) && lists[3].contains(&102), "ring neighbors");
        let mut others: Vec<u32> = lists[..8].concat().into_iter().filter(|&e| e < 100).collect();
        others.sort_unstable();
        others.dedup();
        assert_eq!(others.len(), 96, "all others are near a few duplicates");
    }

    #[test]
    fn a_small_group_is_linked_completely() {
        let list = list_of(&[7, 8, 9], 1, (&(20..60).collect::<Vec<_>>(), &[]), 32);
        assert!(list.contains(&7) && list.contains(&9) && !list.contains(&8));
        assert_eq!(list.len(), 32);
    }

    #[test]
    fn a_group_alone_fills_its_lists() {
        let group: Vec<u32> = (0..1000).collect();
        let mut list = list_of(&group, 0, (&[], &[]), 32);
        list.sort_unstable();
        list.dedup();
        assert_eq!(list.len(), 32);
    }
}
