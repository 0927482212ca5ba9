//! For each point, a bounded list of the nearest distinct elements found for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use distance::Candidate;
use rayon::prelude::*;

use crate::{BuildError, Control};

/// Points whose candidates share a lock.
const STRIPE: usize = 64;

/// The result does not depend on the order or the threads in which candidates are added. If an element is added with several distances, the
/// least counts.
pub(crate) struct Candidates {
    stripes: Vec<Mutex<Stripe>>,
    keep: usize,
}

struct Stripe {
    /// `room` entries per point; empty until a candidate is added to one of the stripe's points.
    entries: Vec<Candidate>,
    points: [Point; STRIPE],
}

#[derive(Clone, Copy)]
struct Point {
    len: u16,
    /// Whether the entries are sorted, distinct and at most `keep`.
    settled: bool,
    /// Admission limit: the `keep`th nearest candidate so far. Only nearer ones are added.
    limit: Candidate,
}

impl Candidates {
    /// Room for the `keep` nearest of each of `points` points.
    pub(crate) fn new(points: usize, keep: usize) -> Self {
        let empty = Point { len: 0, settled: true, limit: Candidate::NONE };
        let stripe = |_| Mutex::new(Stripe { entries: Vec::new(), points: [empty; STRIPE] });
        let stripes = (0..points.div_ceil(STRIPE)).map(stripe).collect();
        Self { stripes, keep }
    }

    /// Adds candidates of one point.
    pub(crate) fn add(&self, point: usize, candidates: impl Iterator<Item = Candidate>) {
        let mut stripe = self.stripe(point);
        let (entries, point) = stripe.of(point, room(self.keep));
        for candidate in candidates {
            if candidate >= point.limit {
                continue;
            }
            if usize::from(point.len) == entries.len() {
                self.settle(entries, point);
            }
            entries[usize::from(point.len)] = candidate;
            point.len += 1;
            point.settled = false;
        }
    }

    /// Candidates kept per point.
    pub(crate) fn keep(&self) -> usize {
        self.keep
    }

    /// Replaces a point's candidates by the nearest of `others`, which are distinct and in any order.
    pub(crate) fn replace(&self, point: usize, others: &mut [Candidate]) {
        let mut stripe = self.stripe(point);
        let (entries, point) = stripe.of(point, room(self.keep));
        let mut taken = others.len();
        if taken > entries.len() {
            others.select_nth_unstable(self.keep - 1);
            taken = self.keep;
        }
        entries[..taken].copy_from_slice(&others[..taken]);
        *point = Point { len: taken as u16, settled: false, limit: Candidate::NONE };
    }

    /// The distinct nearest candidates of a point, nearest first.
    pub(crate) fn of(&self, point: usize, out: &mut Vec<Candidate>) {
        let mut stripe = self.stripe(point);
        let (entries, point) = stripe.of(point, room(self.keep));
        if !point.settled {
            self.settle(entries, point);
        }
        out.extend_from_slice(&entries[..usize::from(point.len)]);
    }

    /// Sorts, and keeps the `keep` nearest distinct elements: several leaves may have added the same one.
    fn settle(&self, entries: &mut [Candidate], point: &mut Point) {
        let list = &mut entries[..usize::from(point.len)];
        list.sort_unstable();
        let kept = distinct(list, self.keep);
        if kept == self.keep {
            point.limit = list[kept - 1];
        }
        point.len = kept as u16;
        point.settled = true;
    }

    /// Frees the memory in parallel: candidates take the most memory of a build.
    pub(crate) fn free(self, control: &Control) -> Result<(), BuildError> {
        let stripes = self.stripes.into_par_iter().chunks(STRIPE);
        control.section("candidates freed").for_each(stripes, |stripes| {
            drop(stripes);
            Ok(())
        })
    }

    fn stripe(&self, point: usize) -> MutexGuard<'_, Stripe> {
        // A panic elsewhere ends the build anyway.
        self.stripes[point / STRIPE].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stripe {
    fn of(&mut self, point: usize, room: usize) -> (&mut [Candidate], &mut Point) {
        if self.entries.is_empty() {
            // Allocated on first use, so that all threads share the cost of zeroed pages.
            self.entries.resize(STRIPE * room, Candidate::NONE);
        }
        let at = point % STRIPE;
        (&mut self.entries[at * room..(at + 1) * room], &mut self.points[at])
    }
}

/// Room for a quarter more entries than are kept, so that the nearest are selected less often.
fn room(keep: usize) -> usize {
    keep + keep / 4 + 2
}

/// Sorts candidates, and keeps the nearest of each element, `most` of them at most.
pub(crate) fn keep_distinct(candidates: &mut Vec<Candidate>, most: usize) {
    candidates.sort_unstable();
    let kept = distinct(candidates, most);
    candidates.truncate(kept);
}

/// Moves the first candidate of each element to the front of the sorted `list`, `most` of them at most, and returns their number.
fn distinct(list: &mut [Candidate], most: usize) -> usize {
    // A bitmap of the elements' low bits rules out most repeats.
    let mut seen = [0u64; 16];
    let mut kept = 0;
    for at in 0..list.len() {
        if kept == most {
            break;
        }
        let candidate = list[at];
        let (word, bit) = (candidate.element() as usize / 64 % seen.len(), 1 << (candidate.element() % 64));
        if seen[word] & bit != 0 && list[..kept].iter().any(|other| other.element() == candidate.element()) {
            continue;
        }
        seen[word] |= bit;
        list[kept] = candidate;
        kept += 1;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Candidates, distinct, room};

    #[test]
    fn lists_have_the_size_of_the_memory_estimate() {
        assert_eq!(size_of::<Candidate>() as u64, pages::sizes::CANDIDATE);
        for keep in [16u32, 24, 56, 64, 72, 120, 392] {
            assert_eq!(room(keep as usize) as u64, pages::sizes::room(keep.into()), "{keep}");
            let candidates = Candidates::new(1, keep as usize);
            candidates.add(0, std::iter::once(Candidate::new(1.0, 0)));
            let stripe = candidates.stripe(0);
            let of_a_point = size_of_val(stripe.entries.as_slice()) / stripe.points.len();
            assert_eq!(of_a_point as u64, pages::sizes::room(keep.into()) * pages::sizes::CANDIDATE, "{keep}");
        }
    }

    #[test]
    fn the_nearest_of_repeated_candidates_stays() {
        let elements = [5, 7, 5, 1029, 7, 2053, 5, 1029, 64];
        let all: Vec<Candidate> =
            (0u8..).zip(elements).map(|(at, element)| Candidate::new(at.into(), element)).collect();
        let mut list = all.clone();
        assert_eq!(distinct(&mut list, 10), 5);
        assert_eq!(list[..5], [all[0], all[1], all[3], all[5], all[8]]);
        let mut list = all.clone();
        assert_eq!((distinct(&mut list, 3), list[2]), (3, all[3]));
        assert_eq!(distinct(&mut [], 3), 0);
    }

    #[test]
    fn the_same_candidates_are_kept_in_any_order() {
        let all: Vec<Candidate> = (0..500u32).map(|id| Candidate::new((id * 37 % 101) as f32, id)).collect();
        let mut expected = all.clone();
        expected.sort_unstable();
        expected.truncate(20);
        for step in [1, 3, 7, 211, 499] {
            let candidates = Candidates::new(70, 20);
            for round in 0..3 {
                candidates.add(66, (0..500).map(|at| all[(at * step + round) % 500]));
            }
            let mut found = Vec::new();
            candidates.of(66, &mut found);
            assert_eq!(found, expected, "step {step}");
            found.clear();
            candidates.of(65, &mut found);
            assert!(found.is_empty());
        }
    }

    #[test]
    fn of_two_distances_the_least_counts_in_any_order() {
        let all: Vec<Candidate> =
            (0..300u32).flat_map(|id| [37, 53].map(|step| Candidate::new((id * step % 101) as f32, id))).collect();
        let mut expected: Vec<Candidate> = all.chunks(2).map(|both| both[0].min(both[1])).collect();
        expected.sort_unstable();
        expected.truncate(20);
        for step in [1, 7, 211, 599] {
            let candidates = Candidates::new(1, 20);
            candidates.add(0, (0..600).map(|at| all[at * step % 600]));
            let mut found = Vec::new();
            candidates.of(0, &mut found);
            assert_eq!(found, expected, "step {step}");
        }
    }
}
