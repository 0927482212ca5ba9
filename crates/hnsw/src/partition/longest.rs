//! The longest vectors under inner product: they are near all points, so that every point is compared with all of them.
//!
//! Partitions by Euclidean distance do not find these pairs: a long vector in a point's direction may be far away.

use rayon::prelude::*;

use super::pivots::{Pivots, Scratch};
use crate::candidates::Candidates;
use crate::space::Space;
use crate::{BuildError, Control};

/// At most this many of the longest vectors are taken, and at most one for each `POINTS` points.
const MOST: usize = 2500;
const POINTS: usize = 8;
/// Candidates added for each point: its nearest among the longest vectors.
const NEAREST: usize = 40;
/// Points compared at a time.
const AT_ONCE: usize = 512;

/// Adds the nearest of the longest vectors to the candidates of each point. Runs on the threads of the pool it is called from.
pub(crate) fn find(space: Space<'_>, points: &[u32], found: &Candidates, control: &Control) -> Result<(), BuildError> {
    let square = |&point: &u32| {
        let value = space.value(point);
        (space.measure.kernel)(value, value)
    };
    // The kernel returns the negative product, so the longest vectors sort first.
    let mut longest = control.section("lengths").fill(points.len(), |at| (square(&points[at]), points[at]))?;
    let count = (points.len() / POINTS).min(MOST);
    if count == 0 {
        return Ok(());
    }
    longest.select_nth_unstable_by(count - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut longest: Vec<u32> = longest[..count].iter().map(|&(_, point)| point).collect();
    longest.sort_unstable();
    let hubs = Pivots::new(space, longest.clone());
    let chunks = points.par_chunks(AT_ONCE).enumerate();
    control.section("longest").for_each_init(chunks, |scratch: &mut Scratch, (chunk, elements)| {
        let mut nearest = vec![0; elements.len() * NEAREST];
        hubs.nearest(space, elements, scratch, &mut nearest);
        for ((at, &element), nearest) in (chunk * AT_ONCE..).zip(elements).zip(nearest.chunks_exact(NEAREST)) {
            let others = nearest.iter().filter_map(|&at| longest.get(at as usize)).filter(|&&other| other != element);
            found.add(at, others.map(|&other| space.candidate(element, other)));
        }
        Ok(())
    })
}
