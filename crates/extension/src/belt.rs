//! Boxes that go from one thread to another full, and come back empty.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// As many boxes as it was made with: so nothing piles up between a fast side and a slow one.
pub(crate) struct Belt<T> {
    full: Mutex<VecDeque<T>>,
    empty: Mutex<Vec<T>>,
}

impl<T> Belt<T> {
    pub(crate) fn new(boxes: impl IntoIterator<Item = T>) -> Self {
        let empty = Mutex::new(boxes.into_iter().collect());
        Self { full: Mutex::new(VecDeque::new()), empty }
    }

    /// A box to be filled, if one is there.
    pub(crate) fn empty(&self) -> Option<T> {
        lock(&self.empty).pop()
    }

    /// Sends a box.
    pub(crate) fn put(&self, full: T) {
        lock(&self.full).push_back(full);
    }

    /// The next box that was sent.
    pub(crate) fn next(&self) -> Option<T> {
        lock(&self.full).pop_front()
    }

    /// Sends a box back.
    pub(crate) fn give_back(&self, empty: T) {
        lock(&self.empty).push(empty);
    }
}

/// Nothing can fail while one of these is locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
