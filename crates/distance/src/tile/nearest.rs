use super::{COLS, ROWS, Tile};
use crate::Candidate;

/// List capacities are multiples of this: the 64-bit lanes of a register.
pub(super) const LANES: usize = 8;
/// Element of an empty place, which sorts after all candidates at a finite distance.
const EMPTY: u32 = u32::MAX;

/// The `k` nearest candidates of each of several points, by position.
#[derive(Default)]
pub struct Nearest {
    pub(super) k: usize,
    /// The capacity of a list: `k`, rounded up to whole registers.
    pub(super) places: usize,
    /// The list of each point, nearest first.
    pub(super) lists: Vec<Candidate>,
    /// The distance that a new candidate must be below; negative infinity for padding, which takes none.
    pub(super) limits: Vec<f32>,
}

impl Nearest {
    /// Empties all lists: for `points` points, padded to `padded` positions, as tiles cover whole blocks.
    ///
    /// # Panics
    /// If `k` is 0, or there are more points than positions.
    pub fn reset(&mut self, points: usize, padded: usize, k: usize) {
        assert!(k > 0 && points <= padded);
        (self.k, self.places) = (k, k.next_multiple_of(LANES));
        self.lists.clear();
        self.lists.resize(padded * self.places, Candidate::new(f32::INFINITY, EMPTY));
        self.limits.clear();
        self.limits.resize(points, f32::INFINITY);
        self.limits.resize(padded, f32::NEG_INFINITY);
    }

    /// The limits of `N` positions from `first`.
    ///
    /// # Panics
    /// If there are fewer positions.
    #[must_use]
    pub fn limits<const N: usize>(&self, first: usize) -> &[f32; N] {
        self.limits[first..].first_chunk().expect("padded to whole tiles")
    }

    /// Adds `other` to the list of `point` if it is near enough.
    #[inline]
    pub fn offer(&mut self, point: usize, distance: f32, other: u32) {
        // False for NaN.
        if distance < self.limits[point] {
            self.insert(point, Candidate::new(distance, other));
        }
    }

    /// Adds the hits of a tile to the lists of its rows, which are the points from `first_row`; its columns are other vectors,
    /// numbered from `first_col`.
    ///
    /// # Panics
    /// If there are no such points.
    pub fn offer_rows(&mut self, tile: &Tile, first_row: usize, first_col: usize) {
        assert!(first_row + ROWS <= self.limits.len());
        #[cfg(target_arch = "x86_64")]
        if self.fit_registers() {
            return super::x64_nearest::offer::<false>(self, tile, first_row, first_col);
        }
        self.offer_rows_portably(tile, first_row, first_col);
    }

    pub(super) fn offer_rows_portably(&mut self, tile: &Tile, first_row: usize, first_col: usize) {
        tile.for_each_hit(|row, col, distance| self.offer(first_row + row, distance, (first_col + col) as u32));
    }

    /// Adds the hits of a tile to the lists of its rows and of its columns, which are both points; only pairs whose row is less
    /// than their column, so that each pair counts once.
    ///
    /// # Panics
    /// If there are no such points.
    pub fn offer_pairs(&mut self, tile: &Tile, first_row: usize, first_col: usize) {
        assert!(first_row.max(first_col + ROWS) + ROWS <= self.limits.len() && COLS == 2 * ROWS);
        #[cfg(target_arch = "x86_64")]
        if self.fit_registers() {
            return super::x64_nearest::offer::<true>(self, tile, first_row, first_col);
        }
        self.offer_pairs_portably(tile, first_row, first_col);
    }

    pub(super) fn offer_pairs_portably(&mut self, tile: &Tile, first_row: usize, first_col: usize) {
        tile.for_each_hit(|row, col, distance| {
            let (a, b) = (first_row + row, first_col + col);
            if a < b {
                self.insert(a, Candidate::new(distance, b as u32));
                self.insert(b, Candidate::new(distance, a as u32));
            }
        });
    }

    /// Whether lists fit into two AVX-512 registers.
    #[cfg(target_arch = "x86_64")]
    fn fit_registers(&self) -> bool {
        self.places <= 2 * LANES && crate::Level::current() >= crate::Level::Avx512
    }

    /// Inserts into a sorted list, whose last candidate drops out.
    ///
    /// Without branches that depend on the list, hence without mispredictions.
    #[inline]
    fn insert(&mut self, point: usize, new: Candidate) {
        let list = &mut self.lists[point * self.places..][..self.k];
        for at in (1..list.len()).rev() {
            list[at] = list[at - 1].max(list[at].min(new));
        }
        list[0] = new.min(list[0]);
        self.limits[point] = list[self.k - 1].distance();
    }

    /// The candidates of a point, nearest first.
    pub fn of(&self, point: usize) -> impl Iterator<Item = Candidate> {
        let list = &self.lists[point * self.places..][..self.k];
        list.iter().copied().take_while(|candidate| candidate.element() != EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn the_nearest_are_kept_in_order() {
        for k in [1, 3, 6, 8, 9, 12, 20] {
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

    #[test]
    fn lists_have_the_nearest_of_all_hits() {
        const POINTS: usize = 61;
        let mut random = Rng::with_seed(5);
        // Lists of up to 16 fit into registers, if the processor has these.
        for (k, portable) in [1, 5, 6, 8, 9, 16, 17].into_iter().flat_map(|k| [(k, false), (k, true)]) {
            let mut nearest = Nearest::default();
            nearest.reset(POINTS, 64, k);
            let mut expected = vec![Vec::new(); POINTS];
            for (first_row, first_col) in [(0, 0), (16, 0), (0, 32), (16, 32), (32, 32), (48, 32)] {
                let mut tile = Tile::default();
                for row in 0..ROWS {
                    // Few distinct distances: ties.
                    tile.distances[row] = std::array::from_fn(|_| random.i32(-32..32) as f32 / 8.0);
                    let there = if first_col == 32 { u32::MAX >> 3 } else { u32::MAX };
                    tile.hits[row] = if first_row + row < POINTS { random.u32(..) & there } else { 0 };
                }
                // The columns are other points, and then other vectors, numbered after all points.
                let other = first_col + 64;
                tile.for_each_hit(|row, col, distance| {
                    let (a, b) = (first_row + row, first_col + col);
                    if a < b {
                        expected[a].push(Candidate::new(distance, b as u32));
                        expected[b].push(Candidate::new(distance, a as u32));
                    }
                    expected[a].push(Candidate::new(distance, (other + col) as u32));
                });
                if portable {
                    nearest.offer_pairs_portably(&tile, first_row, first_col);
                    nearest.offer_rows_portably(&tile, first_row, other);
                } else {
                    nearest.offer_pairs(&tile, first_row, first_col);
                    nearest.offer_rows(&tile, first_row, other);
                }
            }
            for (point, mut expected) in expected.into_iter().enumerate() {
                expected.sort_unstable();
                expected.truncate(k);
                assert_eq!(nearest.of(point).collect::<Vec<_>>(), expected, "{k} {point}");
                assert_eq!(nearest.limits[point], expected[k - 1].distance(), "{k} {point}");
            }
        }
    }
}
