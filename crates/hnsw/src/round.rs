//! A round in which every element of a layer chooses its neighbors.

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::{self, Draft};
use crate::{BuildError, Control, Pool};

/// What all points of a layer chose, not yet in the draft.
pub(crate) struct Chosen<'a> {
    points: &'a [u32],
    order: &'a [u32],
    width: usize,
    /// In `order`.
    lists: Vec<u32>,
    counts: Vec<u16>,
}

/// The new lists of `points`, which choose in `order`, all of them by the draft as it is. `choose` fills the list of
/// the point at a position, and says how many of them the diversity rule chose.
pub(crate) fn choose_all<'a, S: Default + Send>(
    draft: &Draft,
    layer: u8,
    points: &'a [u32],
    order: &'a [u32],
    pool: &Pool,
    control: &Control,
    choose: impl Fn(&Draft, &mut S, usize, &mut Vec<u32>) -> usize + Sync,
) -> Result<Chosen<'a>, BuildError> {
    let width = draft.width(layer);
    let mut lists = vec![NO_NEIGHBOR; points.len() * width];
    let mut counts = vec![0; points.len()];
    let choose = |(scratch, list): &mut (S, Vec<u32>), ((slots, count), &at): ((&mut [u32], &mut u16), &u32)| {
        control.check()?;
        *count = choose(draft, scratch, at as usize, list) as u16;
        slots[..list.len()].copy_from_slice(list);
        // Progress is counted in elements, all of which are on layer 0.
        control.progress().add(u64::from(layer == 0));
        Ok(())
    };
    pool.run(|| lists.par_chunks_mut(width).zip(&mut counts).zip(order).try_for_each_init(Default::default, choose))?;
    Ok(Chosen { points, order, width, lists, counts })
}

impl Chosen<'_> {
    /// Replaces the lists in the draft. Returns for each position how many of them the diversity rule chose.
    pub(crate) fn place(self, draft: &mut Draft, layer: u8) -> Vec<u16> {
        let mut chosen = vec![0; self.points.len()];
        for ((&at, list), count) in self.order.iter().zip(self.lists.chunks_exact(self.width)).zip(self.counts) {
            draft.set(self.points[at as usize], layer, draft::used(list).iter().copied());
            chosen[at as usize] = count;
        }
        chosen
    }
}
