//! A round in which every element of a layer chooses its neighbors.

use graph::NO_NEIGHBOR;
use rayon::prelude::*;

use crate::draft::{self, Draft};
use crate::{BuildError, Control, Pool};

/// Replaces the lists of `points`, which choose in `order`, all of them by the draft as it was before. `choose` fills the list of
/// the point at a position, and says how many of them the diversity rule chose; returns that for each position.
pub(crate) fn choose_all<S: Default + Send>(
    draft: &mut Draft,
    layer: u8,
    points: &[u32],
    order: &[u32],
    pool: &Pool,
    control: &Control,
    choose: impl Fn(&Draft, &mut S, usize, &mut Vec<u32>) -> usize + Sync,
) -> Result<Vec<u16>, BuildError> {
    let width = draft.width(layer);
    let mut lists = vec![NO_NEIGHBOR; points.len() * width];
    let mut counts = vec![0; points.len()];
    let before = &*draft;
    let choose = |(scratch, list): &mut (S, Vec<u32>), ((slots, count), &at): ((&mut [u32], &mut u16), &u32)| {
        control.check()?;
        *count = choose(before, scratch, at as usize, list) as u16;
        slots[..list.len()].copy_from_slice(list);
        // Progress is counted in elements, all of which are on layer 0.
        control.progress().add(u64::from(layer == 0));
        Ok(())
    };
    pool.run(|| lists.par_chunks_mut(width).zip(&mut counts).zip(order).try_for_each_init(Default::default, choose))?;
    let mut chosen = vec![0; points.len()];
    for ((&at, list), count) in order.iter().zip(lists.chunks_exact(width)).zip(counts) {
        draft.set(points[at as usize], layer, draft::used(list).iter().copied());
        chosen[at as usize] = count;
    }
    Ok(chosen)
}
