//! Links elements of the same value: more than ten duplicates need several elements.
//!
//! By distance alone they would link only to each other, and the diversity rule would cut even these links. So each one uses half of
//! its slots for a ring with chords among the duplicates, and half for the first one's neighbors of other values.

use graph::NO_NEIGHBOR;

use crate::draft::Draft;
use crate::input::TakenRows;
use crate::{BuildError, Control};

/// Sets the final lists at layer 0 of all elements with equal values, and fills lists that are short because there are few distinct values.
pub(crate) fn link(draft: &mut Draft, taken: &TakenRows, control: &Control) -> Result<(), BuildError> {
    let mut pairs: Vec<_> = taken.duplicates.iter().map(|&(duplicate, first)| (first, duplicate)).collect();
    pairs.sort_unstable();
    for pairs in pairs.chunk_by(|a, b| a.0 == b.0) {
        let first = pairs[0].0;
        let group: Vec<u32> = std::iter::once(first).chain(pairs.iter().map(|&(_, duplicate)| duplicate)).collect();
        let outside = draft.neighbors(first, 0).to_vec();
        for at in 0..group.len() {
            control.check()?;
            let list = list_of(&group, at, &outside, 2 * draft.m());
            draft.set(group[at], 0, list);
        }
    }
    fill_short(draft, taken);
    Ok(())
}

/// Half the list from the group, the rest from outside, and remaining slots from the group again.
fn list_of(group: &[u32], at: usize, outside: &[u32], width: usize) -> Vec<u32> {
    let mut list = Vec::with_capacity(width);
    let from_group = width - outside.len().min(width / 2);
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
    list.extend(outside.iter().take(width - list.len()));
    list
}

/// Distances along the ring: powers of two first, so that any member is reached in few steps, then all distances.
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
    fn a_large_group_keeps_outside_links() {
        let group: Vec<u32> = (100..200).collect();
        let outside: Vec<u32> = (0..32).collect();
        let list = list_of(&group, 3, &outside, 32);
        assert_eq!(list.len(), 32);
        assert_eq!(list.iter().filter(|&&e| e < 100).count(), 16);
        assert!(list.contains(&104) && list.contains(&102), "ring neighbors");
    }

    #[test]
    fn a_small_group_is_linked_completely() {
        let list = list_of(&[7, 8, 9], 1, &(20..60).collect::<Vec<_>>(), 32);
        assert!(list.contains(&7) && list.contains(&9) && !list.contains(&8));
        assert_eq!(list.len(), 32);
    }

    #[test]
    fn a_group_alone_fills_its_lists() {
        let group: Vec<u32> = (0..1000).collect();
        let mut list = list_of(&group, 0, &[], 32);
        list.sort_unstable();
        list.dedup();
        assert_eq!(list.len(), 32);
    }
}
