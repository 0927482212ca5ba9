/// Reproducible random numbers (SplitMix64). Not a library's generator, whose numbers may change with its version: figures of many reports
/// and some tests belong to the sets that these numbers make.
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed);
        random.next();
        random
    }

    /// 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "the numbers never end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number greater than 0 and at most 1.
    pub fn unit(&mut self) -> f32 {
        ((self.next() >> 40) + 1) as f32 / (1u32 << 24) as f32
    }

    /// One of `0..limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }

    /// A normally distributed number with mean 0 and variance 1.
    pub fn normal(&mut self) -> f32 {
        let angle = std::f32::consts::TAU * self.unit();
        (-2.0 * self.unit().ln()).sqrt() * angle.cos()
    }

    /// `dims` normally distributed numbers.
    pub fn normals(&mut self, dims: usize) -> Vec<f32> {
        (0..dims).map(|_| self.normal()).collect()
    }

    /// A rank from 0 to `limit - 1` with a probability proportional to `(rank + 1)^-exponent` (by inversion of the continuous law).
    pub fn power_law(&mut self, limit: usize, exponent: f32) -> usize {
        let (u, power) = (f64::from(self.unit()), 1.0 - f64::from(exponent));
        let top = (limit as f64 + 1.0).powf(power);
        let rank = (u * (top - 1.0) + 1.0).powf(power.recip()) - 1.0;
        (rank as usize).min(limit - 1)
    }
}
