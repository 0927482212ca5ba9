use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::{Reservation, Size};

/// The memory and the places that builds share, and the queue of those that wait for some.
#[derive(Debug)]
pub(crate) struct Admission {
    limit: u64,
    /// Builds at a time; 0 for as many as memory allows.
    max_builds: usize,
    state: Mutex<State>,
    /// Told of every change that may let somebody in, or move somebody up.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    reserved: u64,
    builds: usize,
    /// In order of arrival.
    queue: VecDeque<Ticket>,
    tickets: Ticket,
}

type Ticket = u64;

/// A build that would not fit even alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Never {
    pub(crate) needed: u64,
    pub(crate) limit: u64,
}

/// How things stand, for status and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) limit: u64,
    pub(crate) reserved: u64,
    pub(crate) builds: usize,
    pub(crate) queued: usize,
}

impl Admission {
    pub(crate) fn new(limit: u64, max_builds: usize) -> Arc<Self> {
        Arc::new(Self { limit, max_builds, state: Mutex::default(), changed: Arc::default() })
    }

    /// Takes a place at the end of the queue, for a build that needs so many bytes of memory.
    pub(crate) fn enter(self: &Arc<Self>, bytes: u64) -> Result<Place, Never> {
        if bytes > self.limit {
            return Err(Never { needed: bytes, limit: self.limit });
        }
        let mut state = self.state();
        state.tickets += 1;
        let ticket = state.tickets;
        state.queue.push_back(ticket);
        drop(state);
        Ok(Place { admission: self.clone(), ticket, bytes })
    }

    pub(crate) fn standing(&self) -> Standing {
        let state = self.state();
        Standing { limit: self.limit, reserved: state.reserved, builds: state.builds, queued: state.queue.len() }
    }

    /// Bytes that builds could still take: what is not reserved, if the system has as much.
    pub(crate) fn free(&self) -> u64 {
        let Standing { limit, reserved, .. } = self.standing();
        let unreserved = limit.saturating_sub(reserved);
        super::free().map_or(unreserved, |system| system.min(unreserved))
    }

    /// Takes more memory for a build that runs. Builds that run come before those that wait.
    pub(super) fn grow(&self, by: u64) -> Result<(), Never> {
        let mut state = self.state();
        let reserved = state.reserved.saturating_add(by);
        if reserved > self.limit {
            return Err(Never { needed: by, limit: self.limit - state.reserved });
        }
        state.reserved = reserved;
        Ok(())
    }

    /// Gives memory back, and with it perhaps the build's place.
    pub(super) fn give_back(&self, bytes: u64, builds: usize) {
        let mut state = self.state();
        state.reserved = state.reserved.saturating_sub(bytes);
        state.builds = state.builds.saturating_sub(builds);
        drop(state);
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue, left when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    ticket: Ticket,
    bytes: u64,
}

impl Place {
    /// The reservation, if it is this one's turn and there is room. Only the first in the queue may pass: a large build is
    /// not kept waiting by small ones that come later.
    pub(crate) fn take(&self) -> Option<Reservation> {
        let Admission { limit, max_builds, .. } = *self.admission;
        let mut state = self.admission.state();
        let first = state.queue.front() == Some(&self.ticket);
        let fits = limit - state.reserved >= self.bytes && (max_builds == 0 || state.builds < max_builds);
        if !first || !fits {
            return None;
        }
        state.queue.pop_front();
        state.reserved += self.bytes;
        state.builds += 1;
        drop(state);
        self.admission.changed.notify_waiters();
        Some(Reservation::new(self.admission.clone(), self.bytes))
    }

    /// Bytes that it waits for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The place in the queue from 1, and what the first one waits for.
    pub(crate) fn position(&self) -> (u32, String) {
        let Admission { limit, max_builds, .. } = *self.admission;
        let state = self.admission.state();
        let before = state.queue.iter().take_while(|&&ticket| ticket != self.ticket).count();
        let reason = if max_builds > 0 && state.builds >= max_builds {
            format!("as many builds run as may at a time, {max_builds}")
        } else {
            let free = Size(limit.saturating_sub(state.reserved));
            format!("the build needs {} of memory; of {}, {free} are free", Size(self.bytes), Size(limit))
        };
        (u32::try_from(before + 1).unwrap_or(u32::MAX), reason)
    }

    /// Completes after the next change. Made before [`Self::take`] is tried, it misses none.
    pub(crate) fn changed(&self) -> OwnedNotified {
        self.admission.changed.clone().notified_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        let before = state.queue.len();
        state.queue.retain(|&ticket| ticket != self.ticket);
        let left = state.queue.len() < before;
        drop(state);
        if left {
            self.admission.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Never, Place, Reservation};

    #[test]
    fn first_come_first_served() {
        let admission = Admission::new(100, 0);
        let [a, b, c] = [60, 70, 10].map(|bytes| admission.enter(bytes).unwrap());
        assert!(b.take().is_none() && c.take().is_none(), "not before the first one");
        let running = a.take().unwrap();
        assert!(b.take().is_none(), "no room");
        assert!(c.take().is_none(), "a small one does not overtake");
        assert_eq!((b.position().0, c.position().0), (1, 2));
        assert_eq!(b.position().1, "the build needs 70 bytes of memory; of 100 bytes, 40 bytes are free");
        drop(running);
        let running = b.take().unwrap();
        assert_eq!(admission.standing().reserved, 70);
        let small = c.take().unwrap();
        assert_eq!((admission.standing().reserved, admission.standing().builds), (80, 2));
        drop((running, small));
        assert_eq!((admission.standing().reserved, admission.standing().builds), (0, 0));
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let admission = Admission::new(100, 1);
        let running = admission.enter(1).unwrap().take().unwrap();
        let [a, b] = [2, 3].map(|bytes| admission.enter(bytes).unwrap());
        assert_eq!(b.position(), (2, "as many builds run as may at a time, 1".to_owned()));
        drop(a);
        assert_eq!((b.position().0, admission.standing().queued), (1, 1));
        assert!(b.take().is_none());
        drop(running);
        assert!(b.take().is_some());
        assert_eq!(admission.standing().queued, 0);
    }

    #[test]
    fn too_large_is_said_at_once() {
        let admission = Admission::new(100, 0);
        assert_eq!(admission.enter(101).unwrap_err(), Never { needed: 101, limit: 100 });
        assert_eq!(admission.standing().queued, 0);
    }

    #[test]
    fn growth_takes_what_is_free() {
        let admission = Admission::new(100, 0);
        let take = |bytes| admission.enter(bytes).unwrap();
        let (a, b): (Reservation, Reservation) = (take(40).take().unwrap(), take(30).take().unwrap());
        let waiting: Place = take(50);
        a.resize(70).unwrap();
        assert_eq!(b.resize(31).unwrap_err(), Never { needed: 1, limit: 0 });
        assert_eq!((a.bytes(), b.bytes()), (70, 30));
        a.resize(20).unwrap();
        assert!(waiting.take().is_some());
        b.release();
        assert_eq!(b.resize(10), Ok(()), "after the end nothing is taken");
        drop((a, b));
        assert_eq!(admission.standing().reserved, 0);
    }

    #[tokio::test]
    async fn a_change_wakes_those_who_wait() {
        let admission = Admission::new(10, 0);
        let running = admission.enter(10).unwrap().take().unwrap();
        let place = admission.enter(10).unwrap();
        let changed = place.changed();
        assert!(place.take().is_none());
        running.release();
        changed.await;
        assert!(place.take().is_some());
    }
}
