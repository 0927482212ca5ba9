/// An element, or a position in a group, with its distance, packed into 64 bits. Ordered by distance, ties by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Candidate(u64);

impl Candidate {
    /// No candidate; sorts after all of them, even those at infinity.
    pub const NONE: Self = Self(u64::MAX);

    /// An element at a distance, which must not be NaN.
    #[must_use]
    pub fn new(distance: f32, element: u32) -> Self {
        let bits = distance.to_bits();
        // Flip all bits of negative floats and the sign bit of others: then the order of unsigned integers is that of the floats.
        let flipped = bits ^ ((bits.cast_signed() >> 31).cast_unsigned() | 1 << 31);
        Self(u64::from(flipped) << 32 | u64::from(element))
    }

    /// The distance.
    #[must_use]
    pub fn distance(self) -> f32 {
        let flipped = (self.0 >> 32) as u32;
        f32::from_bits(flipped ^ (!(flipped.cast_signed() >> 31).cast_unsigned() | 1 << 31))
    }

    /// The element or position.
    #[must_use]
    pub fn element(self) -> u32 {
        self.0 as u32
    }

    /// The packed form, in the same order. Never 0: that would have the distance NaN.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The candidate that [`Self::to_bits`] packed.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::Candidate;

    #[test]
    fn candidates_have_the_order_of_distances() {
        let distances = [f32::NEG_INFINITY, -3.5, -1e-40, 0.0, 1e-40, 0.5, 2.0, f32::INFINITY];
        for pair in distances.windows(2) {
            assert!(Candidate::new(pair[0], u32::MAX - 1) < Candidate::new(pair[1], 0));
        }
        assert!(distances.iter().all(|&x| Candidate::new(x, 7).distance() == x));
        assert!(Candidate::new(f32::INFINITY, u32::MAX - 1) < Candidate::NONE);
        assert_eq!(Candidate::new(1.0, 7).element(), 7);
    }
}
