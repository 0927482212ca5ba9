//! A bounded queue between two threads that recycles its buffers: they go to one side full, and come back empty.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of buffers is fixed, so a slow side holds a fast one back.
pub(crate) struct RecyclingQueue<T> {
    full: Mutex<VecDeque<T>>,
    empty: Mutex<Vec<T>>,
}

impl<T> RecyclingQueue<T> {
    pub(crate) fn new(buffers: impl IntoIterator<Item = T>) -> Self {
        let empty = Mutex::new(buffers.into_iter().collect());
        Self { full: Mutex::new(VecDeque::new()), empty }
    }

    /// An empty buffer, if there is one.
    pub(crate) fn empty(&self) -> Option<T> {
        lock(&self.empty).pop()
    }

    /// Sends a full buffer.
    pub(crate) fn put(&self, full: T) {
        lock(&self.full).push_back(full);
    }

    /// The next full buffer.
    pub(crate) fn next(&self) -> Option<T> {
        lock(&self.full).pop_front()
    }

    /// Returns an empty buffer.
    pub(crate) fn give_back(&self, empty: T) {
        lock(&self.empty).push(empty);
    }
}

/// Nothing panics while a lock is held, so a poisoned lock can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
