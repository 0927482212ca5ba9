use crate::candidate::Candidate;

/// The `k` nearest of each of several points, by position.
#[derive(Default)]
pub(crate) struct Nearest {
    k: usize,
    /// Of each point, nearest first.
    lists: Vec<Candidate>,
    /// The distance that a new one must be below; of padding, below everything.
    limits: Vec<f32>,
}

impl Nearest {
    /// Starts anew with `points` points and room for a block of `padded` positions.
    pub(crate) fn reset(&mut self, points: usize, padded: usize, k: usize) {
        self.k = k;
        self.lists.clear();
        self.lists.resize(points * k, Candidate::NONE);
        self.limits.clear();
        self.limits.resize(points, f32::INFINITY);
        self.limits.resize(padded, f32::NEG_INFINITY);
    }

    /// The limits of `N` positions from `first`.
    pub(crate) fn limits<const N: usize>(&self, first: usize) -> &[f32; N] {
        self.limits[first..].first_chunk().expect("padded to whole tiles")
    }

    /// Takes `other` into the list of `point` if it is near enough.
    #[inline]
    pub(crate) fn offer(&mut self, point: usize, distance: f32, other: u32) {
        // Not if it is no number.
        if distance < self.limits[point] {
            let list = &mut self.lists[point * self.k..(point + 1) * self.k];
            let last = insert(list, Candidate::new(distance, other));
            if last != Candidate::NONE {
                self.limits[point] = last.distance();
            }
        }
    }

    /// What was found for a point, nearest first.
    pub(crate) fn of(&self, point: usize) -> impl Iterator<Item = Candidate> {
        let list = &self.lists[point * self.k..(point + 1) * self.k];
        list.iter().copied().take_while(|&candidate| candidate != Candidate::NONE)
    }
}

/// Puts one more into a list in ascending order, whose last one drops out. Returns the new last one.
///
/// What is done depends on nothing that is in the list: there is no branch that would be guessed wrong.
#[inline]
fn insert(list: &mut [Candidate], new: Candidate) -> Candidate {
    for at in (1..list.len()).rev() {
        list[at] = list[at - 1].max(list[at].min(new));
    }
    if let Some(first) = list.first_mut() {
        *first = new.min(*first);
    }
    list.last().copied().unwrap_or(Candidate::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_kept_in_order() {
        for k in [1, 3, 6, 12] {
            let mut nearest = Nearest::default();
            nearest.reset(2, 2, k);
            let offered = (0..100u32).map(|id| ((id * 37 % 101) as f32 - 50.0, id));
            offered.clone().for_each(|(distance, id)| nearest.offer(1, distance, id));
            nearest.offer(1, f32::NAN, 0);
            let mut expected: Vec<_> = offered.map(|(distance, id)| Candidate::new(distance, id)).collect();
            expected.sort_unstable();
            expected.truncate(k);
            assert_eq!(nearest.of(1).collect::<Vec<_>>(), expected);
            assert_eq!(nearest.of(0).count(), 0);
        }
    }
}
