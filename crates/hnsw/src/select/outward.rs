//! Links out of groups of near-identical elements.
//!
//! An element of a group that is larger than its list, such as near-duplicates of a default text, has only neighbors of its group. A search
//! that arrives in such a group sees elements that are all equally far from its query, and hardly any link that leads out. So each element
//! of the group gives up its last links for links out of the group. Different elements get different ones, so that a search that expands a
//! few elements sees many.

use distance::{Candidate, Metric};
use rayon::prelude::*;

use super::round::Choosing;
use super::rule::{Rule, Selector};
use crate::draft::Draft;
use crate::random::Random;
use crate::space::{Query, Space};
use crate::{BuildError, Control};

/// Elements tested first. If none of them is in a group, groups are small or absent, and the pass ends.
const TESTED: usize = 256;

/// Elements with which an element is compared, to determine whether it is in a group, and which elements are near the group.
const COMPARED: usize = 256;

/// A gap ends a group: the next element is farther than all before by this factor. Data without groups have no such gap, whatever their
/// dimensions. (Most distances are squared: a factor of 4 in length.)
const GAP: f32 = 16.0;

/// The nearest elements outside the group, from which the diversity rule chooses.
const OUTSIDE: usize = 48;
/// How many the rule chooses. An element gets links to some of them.
const SPREAD: usize = 16;

/// An element gives up one in this many of its links, and at least one.
const GIVEN: usize = 16;

/// Elements of one task.
const PART: usize = 64;

/// Distances below this share of the median distance are rounding errors.
const ROUNDING: f32 = 1e-6;

#[derive(Default)]
struct Scratch {
    query: Query,
    /// Random elements, the same for all points of a task, so that their values are read from memory once.
    anywhere: Vec<u32>,
    near: Vec<Candidate>,
    outside: Vec<Candidate>,
    selector: Selector,
}

struct Groups<'a> {
    draft: &'a Draft,
    layer: u8,
    space: Space<'a>,
    choosing: Choosing<'a>,
}

/// Replaces the last links of all elements whose neighbors are near-identical to them. Runs on the threads of the pool it is called from.
pub(crate) fn link_out(
    draft: &mut Draft,
    layer: u8,
    space: Space<'_>,
    choosing: Choosing<'_>,
    control: &Control,
) -> Result<(), BuildError> {
    // Neither inner products nor codes identify near-identical elements: exact Euclidean distances do.
    let measure = match space.measure.metric {
        Metric::InnerProduct | Metric::Cosine => space.measure.with_metric(Metric::L2).unwrap_or(space.measure),
        _ => space.measure,
    };
    let space = Space { measure, augmentations: &[], codes: None, ..space };
    let groups = Groups { draft, layer, space, choosing };
    let links_of = |places: &[usize]| -> Result<Vec<Vec<u32>>, BuildError> {
        let links = |scratch: &mut Scratch, places: &[usize]| -> Result<Vec<_>, BuildError> {
            let mut random = Random::new(places[0] as u64);
            scratch.anywhere.clear();
            scratch.anywhere.extend((0..COMPARED / 2).map(|_| choosing.at(random.below(choosing.order.len()))));
            Ok(places.iter().map(|&place| groups.links(place, scratch)).collect())
        };
        Ok(control.section("links out").map_init(places.par_chunks(PART), links)?.into_iter().flatten().collect())
    };
    let mut places: Vec<usize> = (0..choosing.order.len()).collect();
    let tested: Vec<usize> = places.iter().copied().step_by((places.len() / TESTED).max(1)).collect();
    if links_of(&tested)?.iter().all(Vec::is_empty) {
        places.clear();
    }
    for (place, links) in places.iter().zip(links_of(&places)?) {
        let slots = draft.slots_mut(choosing.at(*place), layer);
        let kept = slots.len() - links.len();
        slots[kept..].copy_from_slice(&links);
    }
    Ok(())
}

impl Groups<'_> {
    /// For the element at a place in the order, links out of its group; none if there is no group, or the list already has a link out of
    /// it.
    fn links(&self, place: usize, scratch: &mut Scratch) -> Vec<u32> {
        let element = self.choosing.at(place);
        let own = self.draft.neighbors(element, self.layer);
        if own.len() < self.choosing.width {
            return Vec::new();
        }
        self.space.prepare(&mut scratch.query, element);
        self.sample(place, scratch);
        let Scratch { query, near, outside, selector, .. } = scratch;
        let Some(median) = near.get(near.len() / 2) else { return Vec::new() };
        let rounding = ROUNDING * median.distance();
        let mut reached = own.iter().map(|&other| self.space.distance_of(query, other)).fold(rounding, f32::max);
        let gap = near.iter().position(|other| {
            let is_outside = other.distance() > GAP * reached;
            reached = reached.max(other.distance());
            is_outside
        });
        let Some(gap) = gap else { return Vec::new() };
        let nearest = &near[gap..near.len().min(gap + OUTSIDE)];
        let rule = Rule { space: self.space, wanted: SPREAD, resolved: false };
        selector.choose(rule, element, nearest, outside);
        let count = (own.len() / GIVEN).max(1).min(outside.len());
        let first = element.wrapping_mul(0x9e37_79b1) as usize % outside.len();
        outside.iter().cycle().skip(first).take(count).map(|other| other.element()).collect()
    }

    /// Other elements by ascending distance: half are random ones of the whole layer, half follow in the order, at random steps below
    /// random powers of two.
    fn sample(&self, place: usize, scratch: &mut Scratch) {
        let Scratch { query, anywhere, near, .. } = scratch;
        let count = self.choosing.order.len();
        let element = self.choosing.at(place);
        let mut random = Random::new(place as u64);
        let nearby = (0..COMPARED / 2).map(|_| {
            let most = 2 << random.below(count.ilog2() as usize + 1);
            self.choosing.at((place + random.below(most)) % count)
        });
        let others = anywhere.iter().copied().chain(nearby).filter(|&other| other != element);
        near.clear();
        near.extend(others.map(|other| Candidate::new(self.space.distance_of(query, other), other)));
        near.sort_unstable();
        near.dedup();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use distance::{Elements, Metric};

    use super::link_out;
    use crate::Control;
    use crate::draft::Draft;
    use crate::select::Choosing;
    use crate::space::{Measure, Space};
    use crate::testing::{cube, euclidean, store, store_of};

    const COUNT: usize = 600;
    /// Elements of a group are the first ones.
    const GROUP: usize = 400;

    /// The lists after the pass. Before, each element has the next four elements as neighbors, and those of the group the next four of the
    /// group.
    fn lists(space: Space<'_>) -> Vec<Vec<u32>> {
        let mut draft = Draft::new(2, vec![0; COUNT]);
        for at in 0..COUNT {
            let part = if at < GROUP { 0..GROUP } else { GROUP..COUNT };
            let next = |step| (part.start + (at - part.start + step) % part.len()) as u32;
            draft.set(at as u32, 0, (1..=4).map(next));
        }
        let order: Vec<u32> = (0..COUNT as u32).collect();
        let choosing = Choosing { name: "selection", points: &order, order: &order, width: 4, counted: false };
        link_out(&mut draft, 0, space, choosing, &Control::default()).unwrap();
        order.iter().map(|&element| draft.neighbors(element, 0).to_vec()).collect()
    }

    #[test]
    fn each_element_of_a_group_links_out_of_it() {
        let mut points = cube::<8>(COUNT, 1);
        points[..GROUP].iter_mut().for_each(|point| *point = point.map(|x| 1e-3 * x));
        let lists = lists(euclidean::<8>(&store(&points)));
        let mut targets = HashSet::new();
        for list in &lists[..GROUP] {
            assert!(list[..3].iter().all(|&other| other < GROUP as u32) && list[3] >= GROUP as u32, "{list:?}");
            targets.insert(list[3]);
        }
        assert!(targets.len() > 100, "{}", targets.len());
        assert!(lists[GROUP..].iter().flatten().all(|&other| other >= GROUP as u32));
    }

    #[test]
    fn rows_without_groups_keep_their_links() {
        let points = cube::<8>(COUNT, 1);
        keep_their_links(euclidean::<8>(&store(&points)));
        // A graph of halfvec by cosine is built by products.
        let values = points.iter().map(|point| {
            let norm = point.iter().map(|x| x * x).sum::<f32>().sqrt();
            point.iter().flat_map(|x| half::f16::from_f32(x / norm).to_le_bytes()).collect()
        });
        let measure = Measure::new(Elements::F16, Metric::Cosine, 8).unwrap();
        keep_their_links(Space::exact(measure, &store_of(values)));
    }

    fn keep_their_links(space: Space<'_>) {
        for (at, list) in lists(space).iter().enumerate() {
            assert_eq!(list.iter().all(|&other| other < GROUP as u32), at < GROUP, "{at}: {list:?}");
        }
    }
}
