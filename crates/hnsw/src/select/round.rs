//! One round of selection: every element of a layer chooses its neighbors.

use std::sync::atomic::{AtomicU32, Ordering};

use distance::Candidate;
use rayon::prelude::*;

use crate::draft::Draft;
use crate::space::{Representation, Space, representation};
use crate::tasks::ranges;
use crate::{BuildError, Control, Pool};

/// The points of a layer, and the order in which they choose: positions in `points`, near points adjacent.
#[derive(Clone, Copy)]
pub(crate) struct Choosing<'a> {
    pub(crate) points: &'a [u32],
    pub(crate) order: &'a [u32],
    /// Slots of a list.
    pub(crate) width: usize,
    /// The name of the round's section in a recorded build.
    pub(crate) name: &'static str,
    /// Whether progress is counted.
    pub(crate) counted: bool,
}

/// A point that chooses.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Its place in `order`.
    pub(crate) place: usize,
    /// Its position in `points`.
    pub(crate) at: usize,
    /// Whether the build's codes, if there are any, represent the distances between points near this one.
    pub(crate) resolved: bool,
}

/// The lists that the points of a layer chose, before they are placed in the draft.
pub(crate) struct Chosen<'a> {
    round: Choosing<'a>,
    /// `width` slots for each point, in `order`: packed candidates, 0 after the last. One allocation, whose memory returns to the system at
    /// once; the allocator would keep many small ones.
    lists: Vec<u64>,
    /// For each point, in `order`: how many neighbors the diversity rule chose.
    by_rule: Vec<u16>,
}

/// Points of one task.
const PART: usize = 64;

impl<'a> Choosing<'a> {
    /// The element at a place in `order`.
    pub(crate) fn at(&self, place: usize) -> u32 {
        self.points[self.order[place] as usize]
    }

    /// Calls `choose` for every point: it fills the point's list, and returns how many neighbors the diversity rule chose.
    pub(crate) fn run<S: Default + Send>(
        self,
        space: Space<'_>,
        pool: &Pool,
        control: &Control,
        choose: impl Fn(&mut S, Turn, &mut Vec<Candidate>) -> usize + Sync,
    ) -> Result<Chosen<'a>, BuildError> {
        // Zeroed memory is mapped when it is first written: here by the tasks, in parallel.
        let (mut lists, mut by_rule) = (vec![0; self.order.len() * self.width], vec![0; self.order.len()]);
        let slots = lists.par_chunks_mut(PART * self.width).zip(by_rule.par_chunks_mut(PART));
        let parts = self.order.par_chunks(PART).zip(slots).enumerate();
        type Slots<'s> = (&'s mut [u64], &'s mut [u16]);
        type Scratch<S> = (S, Vec<Candidate>);
        let choose_all = |(scratch, list): &mut Scratch<S>, (part, (order, slots)): (usize, (&[u32], Slots<'_>))| {
            let (lists, by_rule) = slots;
            let elements = order.iter().map(|&at| self.points[at as usize]);
            let near = representation::near_pairs(elements);
            let resolved = space.codes.is_none_or(|codes| Representation::Codes(codes).represents_most(space, near));
            let slots = lists.chunks_exact_mut(self.width).zip(by_rule);
            for ((place, &at), (slots, by_rule)) in (part * PART..).zip(order).zip(slots) {
                *by_rule = choose(scratch, Turn { place, at: at as usize, resolved }, list) as u16;
                slots.iter_mut().zip(list.iter()).for_each(|(slot, near)| *slot = near.to_bits());
            }
            control.progress().add(if self.counted { order.len() as u64 } else { 0 });
            Ok(())
        };
        pool.run(|| control.section(self.name).for_each_init(parts, choose_all))?;
        Ok(Chosen { round: self, lists, by_rule })
    }

    /// For each element up to the last point, its place in `order`; `u32::MAX` if it is no point.
    pub(super) fn places(self, control: &Control) -> Result<Vec<u32>, BuildError> {
        let elements = self.points.last().map_or(0, |&last| last as usize + 1);
        let places: Vec<AtomicU32> = (0..elements).map(|_| AtomicU32::new(u32::MAX)).collect();
        control.section("places").for_each(ranges(self.order.len()), |range| {
            let place = |place: usize| {
                places[self.points[self.order[place] as usize] as usize].store(place as u32, Ordering::Relaxed);
            };
            range.for_each(place);
            Ok(())
        })?;
        Ok(places.into_iter().map(AtomicU32::into_inner).collect())
    }
}

impl<'a> Chosen<'a> {
    /// The round in which these lists were chosen.
    pub(crate) fn round(&self) -> Choosing<'a> {
        self.round
    }

    /// The list of the point at a place in `order`.
    pub(crate) fn list(&self, place: usize) -> impl Iterator<Item = Candidate> + Clone {
        let slots = &self.lists[place * self.round.width..][..self.round.width];
        slots.iter().take_while(|&&bits| bits != 0).map(|&bits| Candidate::from_bits(bits))
    }

    /// Puts the lists into the draft. Returns for each position how many neighbors the diversity rule chose. Runs on the threads
    /// of the pool it is called from.
    pub(crate) fn place(self, draft: &mut Draft, layer: u8, control: &Control) -> Result<Vec<u16>, BuildError> {
        let points = self.round.points;
        let place_of = self.round.places(control)?;
        let neighbors = |place: u32| self.list(place as usize).map(|neighbor| neighbor.element());
        if layer == 0 {
            let placed = |element| Some(neighbors(*place_of.get(element).filter(|&&place| place != u32::MAX)?));
            draft.set_layer0(placed, control)?;
        } else {
            points.iter().for_each(|&point| draft.set(point, layer, neighbors(place_of[point as usize])));
        }
        control
            .section("chosen by the rule")
            .fill(points.len(), |at| self.by_rule[place_of[points[at] as usize] as usize])
    }
}

#[cfg(test)]
mod tests {
    use distance::Candidate;

    use super::Choosing;
    use crate::Control;
    use crate::draft::Draft;
    use crate::testing::{euclidean, pool, store};

    #[test]
    fn every_point_has_the_list_that_it_chose() {
        // Three points of six elements, which choose in another order: 5, 0, 3.
        let store = store(&[[0.0]; 6]);
        let (space, pool, control) = (euclidean::<1>(&store), pool(), Control::default());
        let choosing = Choosing { points: &[0, 3, 5], order: &[2, 0, 1], width: 2, name: "choice", counted: true };
        let to = |elements: &[u32]| elements.iter().map(|&element| Candidate::new(0.0, element)).collect::<Vec<_>>();
        let choose = |turns: &mut Vec<usize>, turn: super::Turn, list: &mut Vec<Candidate>| {
            turns.push(turn.at);
            // Without codes, distances are exact.
            assert!(turn.resolved);
            assert_eq!(turns.len(), turn.place + 1, "one thread takes all turns, in order");
            *list = match turn.at {
                0 => to(&[3]),
                1 => to(&[5, 0, 4]),
                _ => to(&[]),
            };
            list.len()
        };
        let chosen = choosing.run(space, &pool, &control, choose).unwrap();
        assert_eq!(choosing.places(&control).unwrap(), [1, u32::MAX, u32::MAX, 2, u32::MAX, 0]);
        assert_eq!(size_of_val(chosen.lists.as_slice()) as u64, 3 * 2 * pages::sizes::CANDIDATE);
        let list = |place| chosen.list(place).map(Candidate::element).collect::<Vec<_>>();
        assert_eq!([list(0), list(1), list(2)], [vec![], vec![3], vec![5, 0]], "what does not fit is left out");
        for layer in [0, 1] {
            let chosen = choosing.run(space, &pool, &control, choose).unwrap();
            let mut draft = Draft::new(2, vec![layer; 6]);
            assert_eq!(pool.run(|| chosen.place(&mut draft, layer, &control)).unwrap(), [1, 3, 0]);
            let lists = [0, 3, 5, 4].map(|element| draft.neighbors(element, layer).to_vec());
            assert_eq!(lists, [vec![3], vec![5, 0], vec![], vec![]], "layer {layer}");
        }
    }
}
