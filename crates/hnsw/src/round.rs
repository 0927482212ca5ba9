//! A round in which every element of a layer chooses its neighbors.

use rayon::prelude::*;

use crate::draft::Draft;
use crate::{BuildError, Control, Pool};
use distance::Candidate;

/// The points of a layer, and the order in which they choose: near ones next to each other, by position.
#[derive(Clone, Copy)]
pub(crate) struct Choosing<'a> {
    pub(crate) points: &'a [u32],
    pub(crate) order: &'a [u32],
    /// Slots of a list.
    pub(crate) width: usize,
    /// Whether progress is counted.
    pub(crate) counted: bool,
}

/// What all points of a layer chose, not yet in the draft.
pub(crate) struct Chosen<'a> {
    of: Choosing<'a>,
    /// In `order`.
    lists: Vec<Candidate>,
    counts: Vec<u16>,
}

impl<'a> Choosing<'a> {
    /// The lists of all points. `choose` fills the list of the one at a place in `order` and a position, and says how many of them
    /// the diversity rule chose.
    pub(crate) fn run<S: Default + Send>(
        self,
        pool: &Pool,
        control: &Control,
        choose: impl Fn(&mut S, usize, usize, &mut Vec<Candidate>) -> usize + Sync,
    ) -> Result<Chosen<'a>, BuildError> {
        let mut lists = vec![Candidate::NONE; self.points.len() * self.width];
        let mut counts = vec![0; self.points.len()];
        type Place<'b> = ((&'b mut [Candidate], &'b mut u16), (usize, &'b u32));
        let choose = |(scratch, list): &mut (S, Vec<Candidate>), ((slots, count), (place, &at)): Place<'_>| {
            control.check()?;
            *count = choose(scratch, place, at as usize, list) as u16;
            slots[..list.len()].copy_from_slice(list);
            control.progress().add(self.counted.into());
            Ok(())
        };
        pool.run(|| {
            let places = lists.par_chunks_mut(self.width).zip(&mut counts);
            places.zip(self.order.par_iter().enumerate()).try_for_each_init(Default::default, choose)
        })?;
        Ok(Chosen { of: self, lists, counts })
    }
}

impl<'a> Chosen<'a> {
    /// Who chose.
    pub(crate) fn by(&self) -> Choosing<'a> {
        self.of
    }

    /// The list of the point at a place in `order`.
    pub(crate) fn list(&self, place: usize) -> &[Candidate] {
        let slots = &self.lists[place * self.of.width..][..self.of.width];
        let used = slots.iter().position(|&slot| slot == Candidate::NONE).unwrap_or(slots.len());
        &slots[..used]
    }

    /// Puts the lists into the draft. Returns for each position how many of them the diversity rule chose.
    pub(crate) fn place(self, draft: &mut Draft, layer: u8) -> Vec<u16> {
        let Choosing { points, order, .. } = self.of;
        let mut by_rule = vec![0; points.len()];
        for (place, &at) in order.iter().enumerate() {
            let list = self.list(place).iter().map(|neighbor| neighbor.element());
            draft.set(points[at as usize], layer, list);
            by_rule[at as usize] = self.counts[place];
        }
        by_rule
    }
}
