//! Raises the in-degree of elements that few others link to.
//!
//! Among near-identical rows a few central elements are nearest to all others. Then nearly all links lead to them, and many elements have
//! no incoming link at all. (Insertion avoids this only because the first elements had no better neighbors than each other.) This pass
//! replaces links that the diversity rule pruned and the refill put back.
//!
//! Each element gives up few links: where some rows are nearer to all queries than most rows are, as bit strings with few bits set, the
//! elements of low in-degree are hardly ever a result, and all have the same few neighbors, whose lists would lead to nothing else.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::draft::Draft;
use crate::space::Space;
use crate::tasks::ranges;
use crate::{BuildError, Control};
use distance::Metric;

/// An element gives up at most one in this many of its links, at least one; more only for elements to which nobody links, which would be
/// unreachable.
const GIVEN: usize = 16;

/// Gives elements of low in-degree links from their own neighbors, in place of refilled links to elements of high in-degree. Visits
/// `points` in `order`. `chosen` has, for each point, how many neighbors the diversity rule chose: these come first in the list, and stay.
/// Counts in-degrees on the threads of the pool it is called from.
///
/// Does nothing under inner product, and cosine in half precision, which normalises to three digits: there, elements of low in-degree are
/// short vectors and hardly ever a result, and links to them would replace links to results.
pub(crate) fn balance_in_degrees(
    draft: &mut Draft,
    space: Space<'_>,
    points: &[u32],
    order: &[u32],
    chosen: &[u16],
    control: &Control,
) -> Result<(), BuildError> {
    if matches!(space.measure.metric, Metric::InnerProduct | Metric::Cosine) {
        return Ok(());
    }
    let enough = (draft.m() * 3 / 4).max(2) as u32;
    let counts: Vec<AtomicU32> = (0..draft.len()).map(|_| AtomicU32::new(0)).collect();
    let fixed: Vec<AtomicU16> = (0..draft.len()).map(|_| AtomicU16::new(0)).collect();
    let section = control.section("in-degrees");
    section.for_each(ranges(points.len()), |range| {
        for (&point, &chosen) in points[range.clone()].iter().zip(&chosen[range]) {
            fixed[point as usize].store(chosen, Ordering::Relaxed);
            for &neighbor in draft.neighbors(point, 0) {
                counts[neighbor as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    // An element loses incoming links only while it has more than enough, so one that has enough now keeps enough.
    let poor = section.map(ranges(order.len()), |range| {
        let elements = order[range].iter().map(|&at| points[at as usize]);
        Ok(elements.filter(|&element| counts[element as usize].load(Ordering::Relaxed) < enough).collect::<Vec<_>>())
    })?;
    let (mut given, most) = (vec![0_u8; draft.len()], (2 * draft.m() / GIVEN).max(1) as u8);
    let mut links: Vec<u32> = counts.into_iter().map(AtomicU32::into_inner).collect();
    for element in poor.into_iter().flatten() {
        control.check()?;
        for host in draft.neighbors(element, 0).to_vec() {
            if links[element as usize] >= enough {
                break;
            }
            let slots = draft.slots_mut(host, 0);
            let first = usize::from(fixed[host as usize].load(Ordering::Relaxed));
            let gives = links[element as usize] == 0 || given[host as usize] < most;
            if !gives || slots.contains(&element) {
                continue;
            }
            let rich = |&slot: &u32| links.get(slot as usize).is_some_and(|&links| links > enough);
            if let Some(free) = slots[first..].iter().rposition(rich) {
                let slot = &mut slots[first + free];
                links[*slot as usize] -= 1;
                links[element as usize] += 1;
                *slot = element;
                given[host as usize] = given[host as usize].saturating_add(1);
            }
        }
    }
    control.ran("in-degrees");
    Ok(())
}

#[cfg(test)]
mod tests {
    use distance::{Elements, Metric};

    use super::balance_in_degrees;
    use crate::Control;
    use crate::draft::Draft;
    use crate::space::{Measure, Space};
    use crate::testing::store;

    /// All link to 4, and nobody to 5.
    const LISTS: [[u32; 4]; 6] = [[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [0, 1, 2, 4], [0, 1, 2, 3], [0, 1, 2, 3]];

    /// The lists after the pass, of which the rule chose the first `chosen`.
    fn balanced(metric: Metric, chosen: u16) -> Draft {
        let store = store(&[[0.0]; 6]);
        let space = Space::exact(Measure::new(Elements::F32, metric, 1).unwrap(), &store);
        let mut draft = Draft::new(2, vec![0; 6]);
        (0..).zip(LISTS).for_each(|(element, list)| draft.set(element, 0, list));
        let points: Vec<u32> = (0..6).collect();
        balance_in_degrees(&mut draft, space, &points, &points, &[chosen; 6], &Control::default()).unwrap();
        draft
    }

    #[test]
    fn an_element_without_incoming_links_gets_refilled_slots() {
        let draft = balanced(Metric::L2, 2);
        assert_eq!(draft.neighbors(0, 0), [1, 2, 3, 5]);
        assert_eq!(draft.neighbors(1, 0), [0, 2, 3, 5]);
        // By then 5 has two links, which is enough, and 4 has no more than that.
        assert_eq!(draft.neighbors(2, 0), [0, 1, 3, 4]);
        assert_eq!(draft.neighbors(5, 0), [0, 1, 2, 3]);
    }

    #[test]
    fn an_element_gives_up_few_links() {
        // Nobody links to 5 and 6, which have the same neighbors.
        let store = store(&[[0.0]; 7]);
        let space = Space::exact(Measure::new(Elements::F32, Metric::L2, 1).unwrap(), &store);
        let mut draft = Draft::new(2, vec![0; 7]);
        (0..).zip(LISTS.iter().chain([&LISTS[5]])).for_each(|(element, &list)| draft.set(element, 0, list));
        let points: Vec<u32> = (0..7).collect();
        balance_in_degrees(&mut draft, space, &points, &points, &[0; 7], &Control::default()).unwrap();
        let lists = [0, 1, 2, 3].map(|element| draft.neighbors(element, 0).to_vec());
        // 0 gives up a second link, to 6, which nobody links to by then; 1 and 3 do not.
        assert_eq!(lists, [[1, 2, 6, 5], [0, 2, 3, 5], [0, 1, 6, 4], [0, 1, 2, 4]]);
    }

    #[test]
    fn links_of_the_rule_stay_and_all_links_by_products() {
        for draft in [balanced(Metric::L2, 4), balanced(Metric::InnerProduct, 2), balanced(Metric::Cosine, 2)] {
            (0..).zip(LISTS).for_each(|(element, list)| assert_eq!(draft.neighbors(element, 0), list));
        }
    }
}
