use thiserror::Error;

/// Why an index was not verified to the end.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("verifying the index needs about {needed} bytes of memory")]
pub struct TooLarge {
    /// An estimate of the memory needed in bytes, from the part of the index that was read.
    pub needed: u64,
}

/// Accounts for the memory of a verification.
#[derive(Clone)]
pub(super) struct Memory {
    limit: u64,
    taken: u64,
    /// The fraction of the index that has been read.
    read: f64,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, taken: 0, read: 1.0 }
    }

    /// Notes that `blocks` of the index's `of` blocks have been read: the memory for the whole index is estimated from that.
    pub(super) fn has_read(&mut self, blocks: u32, of: u32) {
        self.read = f64::from(blocks.max(1)) / f64::from(of.max(1));
    }

    /// Accounts for an allocation.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), TooLarge> {
        let taken = self.taken.saturating_add(bytes as u64);
        if taken > self.limit {
            return Err(self.too_large(taken));
        }
        self.taken = taken;
        Ok(())
    }

    fn too_large(&self, taken: u64) -> TooLarge {
        // With a margin, so that a caller that provides this much is not asked for more.
        TooLarge { needed: (taken as f64 / self.read * 1.2) as u64 }
    }

    /// Appends a value. Vectors grow by a quarter, so that little of their capacity is unused.
    pub(super) fn push<T>(&mut self, values: &mut Vec<T>, value: T) -> Result<(), TooLarge> {
        if values.len() == values.capacity() {
            let more = (values.len() / 4).max(1024);
            self.take(more * size_of::<T>())?;
            values.try_reserve_exact(more).map_err(|_| self.too_large(self.taken))?;
        }
        values.push(value);
        Ok(())
    }

    /// A vector of `count` equal values.
    pub(super) fn filled<T: Clone>(&mut self, value: T, count: usize) -> Result<Vec<T>, TooLarge> {
        let mut values = Vec::new();
        self.take(count.saturating_mul(size_of::<T>()))?;
        values.try_reserve_exact(count).map_err(|_| self.too_large(self.taken))?;
        values.resize(count, value);
        Ok(values)
    }

    /// `count` bits, all unset.
    pub(super) fn bits(&mut self, count: usize) -> Result<Bits, TooLarge> {
        Ok(Bits(self.filled(0, count.div_ceil(64))?))
    }

    /// Appends a bit, the one with number `at`.
    pub(super) fn push_bit(&mut self, bits: &mut Bits, at: usize, set: bool) -> Result<(), TooLarge> {
        if at.is_multiple_of(64) {
            self.push(&mut bits.0, 0)?;
        }
        if set {
            bits.set(at);
        }
        Ok(())
    }

    /// Frees a vector.
    pub(super) fn free<T>(&mut self, values: Vec<T>) {
        self.taken -= (values.capacity() * size_of::<T>()) as u64;
    }
}

/// A bit for each block or element.
#[derive(Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Whether a bit is set; bits beyond the end are not.
    pub(super) fn is_set(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Sets a bit. Returns whether it was set before.
    pub(super) fn set(&mut self, at: usize) -> bool {
        let was_set = self.is_set(at);
        self.0[at / 64] |= 1 << (at % 64);
        was_set
    }

    /// Unsets a bit.
    pub(super) fn unset(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }

    /// Unsets all bits.
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The first set bit from `start` on.
    pub(super) fn next(&self, start: usize) -> Option<usize> {
        let first = self.0.get(start / 64)? >> (start % 64) << (start % 64);
        let rest = self.0[start / 64 + 1..].iter().copied();
        let words = (start / 64..).zip(std::iter::once(first).chain(rest));
        words.into_iter().find(|&(_, word)| word != 0).map(|(at, word)| at * 64 + word.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, TooLarge};

    #[test]
    fn bits_are_found() {
        let mut bits = Memory::new(1000).bits(200).unwrap();
        for at in [0, 63, 64, 199] {
            assert!(!bits.set(at) && bits.set(at));
        }
        let found: Vec<_> = std::iter::successors(bits.next(0), |&at| bits.next(at + 1)).collect();
        assert_eq!(found, [0, 63, 64, 199]);
        bits.unset(63);
        assert_eq!((bits.next(1), bits.is_set(63), bits.is_set(100_000)), (Some(64), false, false));
        bits.clear();
        assert_eq!((bits.next(0), bits.next(256)), (None, None));
    }

    #[test]
    fn no_more_is_taken_than_allowed() {
        let mut memory = Memory::new(20_000);
        let mut values: Vec<u64> = Vec::new();
        memory.has_read(1, 10);
        let error = (0..).find_map(|value| memory.push(&mut values, value).err());
        assert!((1024..2500).contains(&values.len()) && values.capacity() * 8 <= 20_000, "{}", values.capacity());
        assert!(matches!(error, Some(TooLarge { needed: 200_000..400_000 })), "{error:?}");
        memory.free(values);
        assert_eq!(memory.filled(0u8, 20_000).unwrap().len(), 20_000);
        assert!(memory.bits(1).is_err());
    }
}
