//! Links across: between groups of rows that lie equally far from each other.
//!
//! Once groups are large, all links of an element stay within its own group, also those to pivots and on upper layers. A search that
//! arrives in another group than its query's expands that group's elements, sees no others, and ends there. So each element gives up its
//! last links for links to the nearest of a random sample, which lie in other groups, different ones for each element: a search that
//! expands a few elements sees many groups, and continues in the nearest one.
//!
//! Such links replace near neighbors, and a search computes more distances. The guard's measures decide whether they pay, and how many.

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::Draft;
use crate::partition::Leaf;
use crate::random::Random;
use crate::space::Space;
use crate::{BuildError, Control};

/// The nearest of some random elements, for each element.
pub(crate) struct Across {
    /// For each element its place in `nearest`; `NO_NEIGHBOR` for one that is not a point.
    places: Vec<u32>,
    /// `most` elements for each place, nearest first; `NO_NEIGHBOR` where there are fewer.
    nearest: Vec<u32>,
    most: usize,
}

impl Across {
    /// Finds the `most` nearest of `drawn` random elements for each of `points`. Runs on the threads of the pool it is called from.
    pub(crate) fn find(
        points: &[u32],
        (drawn, most): (usize, usize),
        space: Space<'_>,
        mut random: Random,
        control: &Control,
    ) -> Result<Self, BuildError> {
        let mut elements = points.to_vec();
        random.shuffle(&mut elements);
        // By inner product the longest elements would be nearest to all others.
        let euclidean = space.euclidean();
        let space = euclidean.unwrap_or(space);
        // Zeroed memory is mapped when it is first written: here by the tasks, in parallel.
        let mut nearest = vec![0; elements.len() * most];
        let groups = elements.par_chunks(drawn).zip(nearest.par_chunks_mut(drawn * most));
        control.section("elements across").for_each_init(groups, |leaf: &mut Leaf, (group, nearest)| {
            nearest.fill(NO_NEIGHBOR);
            if group.len() < 2 {
                return Ok(());
            }
            leaf.compare(space, group.iter().copied(), most, control)?;
            for (at, nearest) in nearest.chunks_exact_mut(most).enumerate() {
                nearest.iter_mut().zip(leaf.found(space, at)).for_each(|(slot, near)| *slot = near.element());
            }
            Ok(())
        })?;
        let mut places = vec![NO_NEIGHBOR; points.iter().max().map_or(0, |&last| last as usize + 1)];
        (0..).zip(&elements).for_each(|(place, &element)| places[element as usize] = place);
        Ok(Self { places, nearest, most })
    }

    /// Replaces the last `count` links of each element's full list at layer 0 by the nearest elements of the sample that are not in the
    /// list. Links placed by a call with a smaller `count` stay. Runs on the threads of the pool it is called from.
    pub(crate) fn link(&self, draft: &mut Draft, count: usize, control: &Control) -> Result<(), BuildError> {
        draft.change_layer0(control.section("links across"), |element, slots| {
            let Some(&place) = self.places.get(element).filter(|&&place| place != NO_NEIGHBOR) else { return };
            if slots.last() == Some(&NO_NEIGHBOR) {
                return;
            }
            let nearest = &self.nearest[place as usize * self.most..][..self.most];
            let (mut end, least) = (slots.len(), slots.len() - count);
            for &near in nearest.iter().filter(|&&near| near != NO_NEIGHBOR) {
                if end == least {
                    break;
                }
                let is_there = slots[end - 1] == near;
                if is_there || !slots.contains(&near) {
                    end -= 1;
                    slots[end] = near;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Across;
    use crate::Control;
    use crate::draft::Draft;
    use crate::random::Random;
    use crate::testing::{euclidean, pool, reached, store};

    /// Groups of this many points, whose lists hold points of their own group.
    const GROUP: u32 = 10;
    const POINTS: u32 = 2000;
    const M: u16 = 4;

    #[test]
    fn groups_are_linked_and_keep_their_nearest() {
        // Groups on a circle, much farther from each other than their points.
        let point = |at: u32| {
            let angle = (at / GROUP) as f32 * 0.0314;
            [100.0 * angle.cos(), 100.0 * angle.sin(), (at % GROUP) as f32 * 0.01]
        };
        let points: Vec<u32> = (0..POINTS).collect();
        let store = store(&points.iter().map(|&at| point(at)).collect::<Vec<_>>());
        let (space, control) = (euclidean::<3>(&store), Control::default());
        let mut draft = Draft::new(M, vec![0; POINTS as usize]);
        let of_group = |point: u32| (0..GROUP).map(move |at| point / GROUP * GROUP + at).filter(move |&at| at != point);
        points.iter().for_each(|&point| draft.set(point, 0, of_group(point)));
        let random = Random::new(1);
        let across = pool().run(|| Across::find(&points, (128, 3), space, random, &control)).unwrap();
        assert!(reached(&draft, 0) <= GROUP as usize);
        for count in [1, 3] {
            let before = draft.copy(&control).unwrap();
            pool().run(|| across.link(&mut draft, count, &control)).unwrap();
            let mut out = 0;
            for &point in &points {
                let own = draft.neighbors(point, 0);
                let kept = own.len() - count;
                assert_eq!(own[..kept], before.neighbors(point, 0)[..kept], "the nearest stay");
                assert!(own.iter().enumerate().all(|(at, other)| *other != point && !own[..at].contains(other)));
                out += own[kept..].iter().filter(|&&other| other / GROUP != point / GROUP).count();
            }
            // Few of the random points are of the same group.
            assert!(out > POINTS as usize * count * 3 / 4, "{out} links of {count} each");
            assert!(reached(&draft, 0) > POINTS as usize * 9 / 10);
        }
    }
}
