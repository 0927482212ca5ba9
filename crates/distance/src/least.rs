/// The `k` least distances so far of an exact search, ascending.
#[derive(Clone, Debug, Default)]
pub struct Least(Vec<f32>);

impl Least {
    /// Adds a distance if it is among the `k` least.
    #[inline]
    pub fn offer(&mut self, distance: f32, k: usize) {
        if self.0.len() == k && self.0.last().is_some_and(|&last| distance >= last) {
            return;
        }
        let at = self.0.partition_point(|&nearer| nearer <= distance);
        self.0.insert(at, distance);
        self.0.truncate(k);
    }

    /// Adds the distances of another part of the search.
    pub fn merge(&mut self, other: Self, k: usize) {
        other.0.into_iter().for_each(|distance| self.offer(distance, k));
    }

    /// The distances.
    #[must_use]
    pub fn distances(&self) -> &[f32] {
        &self.0
    }
}
