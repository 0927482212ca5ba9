/// An element, or a position, and how far it is: ordered by distance, of equally far ones the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate(u64);

impl Candidate {
    /// Behind everything that is at a distance.
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) fn new(distance: f32, element: u32) -> Self {
        let bits = distance.to_bits();
        // Of negative numbers all bits, of others the sign: then they are ordered as unsigned integers.
        let flipped = bits ^ ((bits.cast_signed() >> 31).cast_unsigned() | 1 << 31);
        Self(u64::from(flipped) << 32 | u64::from(element))
    }

    pub(crate) fn distance(self) -> f32 {
        let flipped = (self.0 >> 32) as u32;
        f32::from_bits(flipped ^ (!(flipped.cast_signed() >> 31).cast_unsigned() | 1 << 31))
    }

    pub(crate) fn element(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// Moves the first of each element to the front of candidates that are in order, up to `most`. Returns how many those are.
pub(crate) fn distinct(list: &mut [Candidate], most: usize) -> usize {
    // Most are told apart by a bit each.
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
    use super::{Candidate, distinct};

    #[test]
    fn the_first_of_each_element_stays() {
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
