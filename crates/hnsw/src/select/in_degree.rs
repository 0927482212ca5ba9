//! Sees to it that every element is found from several others.
//!
//! Where vectors differ in length, a few central elements are near all others. Then nearly all links lead to them, and the in-degree of the others
//! is hardly above zero. (Insertion has no such trouble only because the first elements had no better neighbors than
//! each other.) The slots that the diversity rule left over are the means: they hold links that it found superfluous.

use crate::draft::Draft;
use crate::{BuildError, Control};

/// Gives elements that few others link to links from their own neighbors, in place of superfluous ones to elements that
/// have many. `points` are gone through in `order`; `chosen` is, by position, how many of its neighbors the diversity rule
/// chose: they stay.
pub(crate) fn spread_links(
    draft: &mut Draft,
    points: &[u32],
    order: &[u32],
    chosen: &[u16],
    control: &Control,
) -> Result<(), BuildError> {
    let enough = (draft.m() * 3 / 4).max(2) as u32;
    let mut links = vec![0u32; draft.len()];
    let mut fixed = vec![0; draft.len()];
    for (&point, &chosen) in points.iter().zip(chosen) {
        draft.neighbors(point, 0).iter().for_each(|&neighbor| links[neighbor as usize] += 1);
        fixed[point as usize] = chosen;
    }
    for &at in order {
        let element = points[at as usize];
        if links[element as usize] >= enough {
            continue;
        }
        control.check()?;
        for host in draft.neighbors(element, 0).to_vec() {
            if links[element as usize] >= enough {
                break;
            }
            let slots = draft.slots_mut(host, 0);
            let first = usize::from(fixed[host as usize]);
            if slots.contains(&element) {
                continue;
            }
            let rich = |&slot: &u32| links.get(slot as usize).is_some_and(|&links| links > enough);
            if let Some(free) = slots[first..].iter().rposition(rich) {
                let slot = &mut slots[first + free];
                links[*slot as usize] -= 1;
                links[element as usize] += 1;
                *slot = element;
            }
        }
    }
    Ok(())
}
