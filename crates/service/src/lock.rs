use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even a poisoned one, for data that no change leaves inconsistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
