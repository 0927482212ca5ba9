//! A round of selection, in which every element of a layer chooses its neighbors.

use distance::Candidate;
use rayon::prelude::*;

use crate::draft::Draft;
use crate::space::{Representation, Space, representation};
use crate::{BuildError, Control, Pool};

/// The points of a layer, and the order in which they choose, as positions: near points are adjacent.
#[derive(Clone, Copy)]
pub(crate) struct Choosing<'a> {
    pub(crate) points: &'a [u32],
    pub(crate) order: &'a [u32],
    /// Slots of a list.
    pub(crate) width: usize,
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
    /// Whether the quantised vectors, if there are any, resolve the distances of points like this one.
    pub(crate) resolved: bool,
}

/// The lists that the points of a layer chose, before they are placed in the draft.
pub(crate) struct Chosen<'a> {
    of: Choosing<'a>,
    /// In `order`.
    parts: Vec<Part>,
}

/// Points of one task.
const PART: usize = 64;

struct Part {
    lists: Vec<Candidate>,
    by_rule: [u16; PART],
}

impl<'a> Choosing<'a> {
    /// Has every point choose. `choose` fills the list of one point and returns how many neighbors the diversity rule chose.
    pub(crate) fn run<S: Default + Send>(
        self,
        space: Space<'_>,
        pool: &Pool,
        control: &Control,
        choose: impl Fn(&mut S, Turn, &mut Vec<Candidate>) -> usize + Sync,
    ) -> Result<Chosen<'a>, BuildError> {
        let part = |(scratch, list): &mut (S, Vec<Candidate>), (part, order): (usize, &[u32])| {
            let elements = order.iter().map(|&at| self.points[at as usize]);
            let near = representation::near_pairs(elements);
            let resolved = space.codes.is_none_or(|codes| Representation::Codes(codes).represents_most(space, near));
            let mut made = Part { lists: vec![Candidate::NONE; order.len() * self.width], by_rule: [0; PART] };
            for (at_part, &at) in order.iter().enumerate() {
                control.check()?;
                let turn = Turn { place: part * PART + at_part, at: at as usize, resolved };
                made.by_rule[at_part] = choose(scratch, turn, list) as u16;
                made.lists[at_part * self.width..][..list.len()].copy_from_slice(list);
            }
            control.progress().add(if self.counted { order.len() as u64 } else { 0 });
            Ok(made)
        };
        let parts = || self.order.par_chunks(PART).enumerate().map_init(Default::default, part).collect();
        Ok(Chosen { of: self, parts: pool.run::<Result<_, BuildError>>(parts)? })
    }
}

impl<'a> Chosen<'a> {
    /// The points that chose.
    pub(crate) fn by(&self) -> Choosing<'a> {
        self.of
    }

    /// The list of the point at a place in `order`.
    pub(crate) fn list(&self, place: usize) -> &[Candidate] {
        let slots = &self.parts[place / PART].lists[place % PART * self.of.width..][..self.of.width];
        let used = slots.iter().position(|&slot| slot == Candidate::NONE).unwrap_or(slots.len());
        &slots[..used]
    }

    /// Puts the lists into the draft. Returns for each position how many neighbors the diversity rule chose. Runs on the threads
    /// of the pool it is called from.
    pub(crate) fn place(self, draft: &mut Draft, layer: u8) -> Vec<u16> {
        let Choosing { points, order, .. } = self.of;
        let mut place_of = vec![u32::MAX; points.last().map_or(0, |&last| last as usize + 1)];
        (0..).zip(order).for_each(|(place, &at)| place_of[points[at as usize] as usize] = place);
        let neighbors = |place: u32| self.list(place as usize).iter().map(|neighbor| neighbor.element());
        if layer == 0 {
            draft.set_layer0(|element| Some(neighbors(*place_of.get(element).filter(|&&place| place != u32::MAX)?)));
        } else {
            points.iter().for_each(|&point| draft.set(point, layer, neighbors(place_of[point as usize])));
        }
        let by_rule = |&point: &u32| {
            let place = place_of[point as usize] as usize;
            self.parts[place / PART].by_rule[place % PART]
        };
        points.par_iter().map(by_rule).collect()
    }
}
