//! Repeatable random numbers (splitmix64): a build with the same seed and input gives the same graph.

#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent generator for branch number `branch`.
    pub(crate) fn fork(&self, branch: u64) -> Self {
        let mut fork = Self(self.0 ^ branch.wrapping_mul(0xd6e8_feb8_6659_fd93));
        fork.next();
        fork
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in 0..`below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        ((u128::from(self.next()) * below as u128) >> 64) as usize
    }

    /// Uniform in (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles items (Fisher-Yates).
    pub(crate) fn shuffle(&mut self, items: &mut [u32]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A stratified sample: one random number of each of `count` equal parts of 0..`below`, or all numbers if these are fewer; ascending.
    /// Rows at a fixed step could all be of one kind, in a table where kinds take turns.
    pub(crate) fn stratified_sample(&mut self, count: usize, below: usize) -> Vec<u32> {
        let count = count.min(below);
        let start = |part: usize| (part as u128 * below as u128 / count as u128) as usize;
        (0..count).map(|part| (start(part) + self.below(start(part + 1) - start(part))) as u32).collect()
    }

    /// `count` distinct numbers of 0..`below` (Floyd's algorithm). Their order is not random: the last numbers are mostly drawn last.
    pub(crate) fn sample(&mut self, count: usize, below: usize) -> Vec<usize> {
        let mut chosen = std::collections::HashSet::with_capacity(count);
        let mut sample = Vec::with_capacity(count);
        for last in below - count..below {
            let at = self.below(last + 1);
            let next = if chosen.insert(at) { at } else { last };
            chosen.insert(next);
            sample.push(next);
        }
        sample
    }

    /// [`Self::sample`] in random order.
    pub(crate) fn shuffled_sample(&mut self, count: usize, below: usize) -> Vec<u32> {
        let mut sample: Vec<u32> = self.sample(count, below).into_iter().map(|number| number as u32).collect();
        self.shuffle(&mut sample);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_shuffled_sample_begins_with_any_numbers() {
        let mut drawn = Random::new(1).shuffled_sample(1000, 4000);
        assert!(drawn[..100].iter().any(|&number| number > 3500));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!((drawn.len(), drawn.last().is_some_and(|&last| last < 4000)), (1000, true));
    }

    #[test]
    fn a_stratified_sample_has_one_of_each_part() {
        let drawn = Random::new(1).stratified_sample(1000, 1_000_000);
        assert!((0..1000).all(|part| drawn[part] as usize / 1000 == part));
        // Kinds that take turns are all drawn.
        let kinds: std::collections::HashSet<u32> = drawn.iter().map(|number| number % 1000).collect();
        assert!(kinds.len() > 500, "{}", kinds.len());
        assert!(Random::new(1).stratified_sample(10, 3).into_iter().eq(0..3));
        assert!(Random::new(1).stratified_sample(10, 0).is_empty());
    }
}
