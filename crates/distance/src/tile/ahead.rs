//! Vectors that lie anywhere in memory are loaded into the cache, where [`prefetch`] can do that, while those before them are
//! packed.

use super::BLOCK;
use crate::prefetch;

/// Yields the vectors of an iterator, with whatever comes with them, and prefetches the vector that is a block further.
pub(super) struct Ahead<I: Iterator, F> {
    rest: I,
    /// The next [`BLOCK`] items, from `first`, in a ring.
    ring: [Option<I::Item>; BLOCK],
    first: usize,
    value: F,
}

impl<'a, I: Iterator, F: Fn(&I::Item) -> &'a [u8]> Ahead<I, F> {
    pub(super) fn new(vectors: I, value: F) -> Self {
        let mut ahead = Self { rest: vectors, ring: std::array::from_fn(|_| None), first: 0, value };
        for _ in 0..BLOCK {
            ahead.next();
        }
        ahead
    }
}

impl<'a, I: Iterator, F: Fn(&I::Item) -> &'a [u8]> Iterator for Ahead<I, F> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        let later = self.rest.next();
        if let Some(later) = &later {
            prefetch((self.value)(later));
        }
        let next = std::mem::replace(&mut self.ring[self.first], later);
        self.first = (self.first + 1) % BLOCK;
        next
    }
}
