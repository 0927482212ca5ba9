/// The `k` nearest of each of several points, by position.
#[derive(Default)]
pub(crate) struct Nearest {
    k: usize,
    entries: Vec<(f32, u32)>,
    /// The distance that a new one must be below; of padding, below everything.
    limits: Vec<f32>,
}

impl Nearest {
    /// Starts anew with `points` points and room for a block of `padded` positions.
    pub(crate) fn reset(&mut self, points: usize, padded: usize, k: usize) {
        self.k = k;
        self.entries.clear();
        self.entries.resize(points * k, (f32::INFINITY, u32::MAX));
        self.limits.clear();
        self.limits.resize(points, f32::INFINITY);
        self.limits.resize(padded, f32::NEG_INFINITY);
    }

    /// The limits of `N` positions from `first`.
    pub(crate) fn limits<const N: usize>(&self, first: usize) -> &[f32; N] {
        self.limits[first..].first_chunk().expect("padded to whole tiles")
    }

    /// Takes `other` into the list of `point` if it is near enough.
    pub(crate) fn offer(&mut self, point: usize, distance: f32, other: u32) {
        if distance >= self.limits[point] || distance.is_nan() {
            return;
        }
        let list = &mut self.entries[point * self.k..(point + 1) * self.k];
        let mut at = self.k - 1;
        while at > 0 && list[at - 1].0 > distance {
            list[at] = list[at - 1];
            at -= 1;
        }
        list[at] = (distance, other);
        self.limits[point] = list[self.k - 1].0;
    }

    /// What was found for a point, nearest first.
    pub(crate) fn of(&self, point: usize) -> impl Iterator<Item = (f32, u32)> {
        let list = &self.entries[point * self.k..(point + 1) * self.k];
        list.iter().copied().take_while(|&(_, other)| other != u32::MAX)
    }
}
