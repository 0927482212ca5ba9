use std::sync::{Mutex, MutexGuard, PoisonError};

/// Points whose candidates share a lock.
const STRIPE: usize = 64;

/// For each point, the nearest elements that were found for it: a bounded list of distinct ones.
///
/// Whatever the order in which candidates come, in whatever threads, the same ones are kept.
pub(crate) struct Candidates {
    stripes: Vec<Mutex<Stripe>>,
    keep: usize,
}

struct Stripe {
    /// `room` entries for each point.
    entries: Vec<Candidate>,
    points: [Point; STRIPE],
}

#[derive(Clone, Copy, Default)]
struct Point {
    len: u16,
    /// Whether there are `keep` distinct entries at the front already, nearest first.
    full: bool,
}

/// An element and how far it is.
pub(crate) type Candidate = (f32, u32);

impl Candidates {
    /// Room for the `keep` nearest of each of so many points.
    pub(crate) fn new(points: usize, keep: usize) -> Self {
        let room = room(keep);
        let stripe = |first: usize| {
            let entries = vec![(0.0, 0); (points - first).min(STRIPE) * room];
            Mutex::new(Stripe { entries, points: [Point::default(); STRIPE] })
        };
        let stripes = (0..points).step_by(STRIPE).map(stripe).collect();
        Self { stripes, keep }
    }

    /// Adds candidates of one point. Those that it has already are not measured again.
    pub(crate) fn add(
        &self,
        point: usize,
        candidates: impl Iterator<Item = Candidate>,
        measure: impl Fn(f32, u32) -> f32,
    ) {
        let mut stripe = self.stripe(point);
        let Stripe { entries, points } = &mut *stripe;
        let room = room(self.keep);
        let entries = &mut entries[point % STRIPE * room..][..room];
        let point = &mut points[point % STRIPE];
        for (rough, other) in candidates {
            let known = &entries[..usize::from(point.len)];
            // All are looked at, which costs less than to stop at the right one.
            if known.iter().fold(false, |found, &(_, known)| found | (known == other)) {
                continue;
            }
            let candidate = (measure(rough, other), other);
            if point.full && order(&candidate, &entries[self.keep - 1]).is_gt() {
                continue;
            }
            if usize::from(point.len) == room {
                self.compact(entries, point);
            }
            entries[usize::from(point.len)] = candidate;
            point.len += 1;
        }
    }

    /// The distinct nearest candidates of a point, nearest first.
    pub(crate) fn of(&self, point: usize, out: &mut Vec<Candidate>) {
        let mut stripe = self.stripe(point);
        let Stripe { entries, points } = &mut *stripe;
        let room = room(self.keep);
        let entries = &mut entries[point % STRIPE * room..][..room];
        let point = &mut points[point % STRIPE];
        self.compact(entries, point);
        out.extend_from_slice(&entries[..usize::from(point.len)]);
    }

    fn compact(&self, entries: &mut [Candidate], point: &mut Point) {
        let used = &mut entries[..usize::from(point.len)];
        used.sort_unstable_by(order);
        let mut kept = 0;
        for at in 0..used.len() {
            // Measured the same way, the same element is equally far: repeats are next to each other.
            if kept == 0 || used[kept - 1].1 != used[at].1 {
                used[kept] = used[at];
                kept += 1;
            }
        }
        point.full = kept >= self.keep;
        point.len = kept.min(self.keep) as u16;
    }

    fn stripe(&self, point: usize) -> MutexGuard<'_, Stripe> {
        // A panic elsewhere ends the build anyway.
        self.stripes[point / STRIPE].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries may come in by a third more than are kept before they are sorted.
fn room(keep: usize) -> usize {
    keep + keep / 3 + 8
}

/// Nearest first; of equally far ones the first element.
pub(crate) fn order(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::Candidates;

    #[test]
    fn the_same_candidates_are_kept_in_any_order() {
        let all: Vec<(f32, u32)> = (0..500u32).map(|id| ((id * 37 % 101) as f32, id)).collect();
        let mut expected = all.clone();
        expected.sort_unstable_by(super::order);
        expected.truncate(20);
        for step in [1, 3, 7, 211, 499] {
            let candidates = Candidates::new(70, 20);
            for round in 0..3 {
                let shuffled = (0..500).map(|at| all[(at * step + round) % 500]);
                candidates.add(66, shuffled, |distance, _| distance);
            }
            let mut found = Vec::new();
            candidates.of(66, &mut found);
            assert_eq!(found, expected, "step {step}");
            found.clear();
            candidates.of(65, &mut found);
            assert!(found.is_empty());
        }
    }
}
