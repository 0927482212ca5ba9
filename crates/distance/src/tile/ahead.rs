//! Prefetches vectors into the cache while the vectors before them are packed, since each may lie anywhere in memory.

use super::BLOCK;
use crate::prefetch;

/// Yields the items of an iterator, and prefetches the vector (by `value`) of the item [`BLOCK`] places ahead.
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
