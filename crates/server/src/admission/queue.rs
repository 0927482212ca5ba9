use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use service::{Asks, Client, Limits, Share, Size, Turn, fair_order, held_back, lock};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::Reservation;

/// The memory and build slots that builds share, and the queue of waiting builds.
///
/// Builds are admitted in the order of [`fair_order`].
#[derive(Debug)]
pub(crate) struct Admission {
    limit: u64,
    /// The most concurrent builds; 0 for as many as memory allows.
    max_builds: usize,
    state: Mutex<State>,
    /// Notified of every change that may admit a waiting build or advance it in the queue.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    reserved: u64,
    builds: usize,
    /// Running builds and their bytes, by client.
    running: HashMap<Arc<str>, Share>,
    /// Waiting builds in order of arrival.
    queue: Vec<Entry>,
    /// Builds that have left the queue, with their memory reserved, and whose sessions have not taken the reservation yet.
    admitted: Vec<Entry>,
    tickets: Ticket,
}

/// A waiting build.
#[derive(Clone, Debug)]
struct Entry {
    ticket: Ticket,
    client: Arc<str>,
    limits: Limits,
    bytes: u64,
}

type Ticket = u64;

/// A build that would exceed the limit even if it ran alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Never {
    pub(crate) needed: u64,
    pub(crate) limit: u64,
}

/// There is not enough memory to extend a running build's reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) missing: u64,
    pub(crate) free: u64,
}

/// Why a build cannot join the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// It would exceed the memory limit even if it ran alone.
    Never(Never),
    /// It would exceed its client's memory limit even if it ran alone.
    BeyondClient(Never),
    /// The client's limit of waiting builds is reached.
    Waiting(u32),
}

/// Figures for status and messages.
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

    /// Queues a build of `client` that needs `bytes` of memory.
    pub(crate) fn enter(self: &Arc<Self>, bytes: u64, client: &Client) -> Result<Place, NoPlace> {
        if bytes > self.limit {
            return Err(NoPlace::Never(Never { needed: bytes, limit: self.limit }));
        }
        let (key, limits) = (client.key(), client.limits);
        if limits.hold_back(Share::default(), bytes) {
            return Err(NoPlace::BeyondClient(Never { needed: bytes, limit: limits.memory }));
        }
        let mut state = lock(&self.state);
        // Counted even if memory is free: behind a waiting build of its client, this one waits too.
        if !limits.let_wait(state.queue.iter().filter(|entry| entry.client == key).count()) {
            return Err(NoPlace::Waiting(limits.waiting));
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.queue.push(Entry { ticket, client: key, limits, bytes });
        self.admit(&mut state);
        drop(state);
        Ok(Place { admission: self.clone(), ticket, bytes })
    }

    pub(crate) fn standing(&self) -> Standing {
        let state = lock(&self.state);
        Standing { limit: self.limit, reserved: state.reserved, builds: state.builds, queued: state.queue.len() }
    }

    /// Bytes available to builds: unreserved ones, but at most what the system has free.
    pub(crate) fn free(&self) -> u64 {
        let Standing { limit, reserved, .. } = self.standing();
        let unreserved = limit.saturating_sub(reserved);
        super::free().map_or(unreserved, |system| system.min(unreserved))
    }

    /// Reserves more memory for a running build. Running builds take precedence over waiting ones.
    pub(super) fn grow(&self, client: &Arc<str>, limits: &Limits, by: u64) -> Result<(), Full> {
        let mut state = lock(&self.state);
        let reserved = state.reserved.saturating_add(by);
        if reserved > self.limit {
            return Err(Full { missing: by, free: self.limit - state.reserved });
        }
        let share = state.running.entry(client.clone()).or_default();
        let memory = share.memory.saturating_add(by);
        if limits.memory > 0 && memory > limits.memory {
            return Err(Full { missing: by, free: limits.memory.saturating_sub(share.memory) });
        }
        share.memory = memory;
        state.reserved = reserved;
        Ok(())
    }

    /// Releases `bytes` of a client's reserved memory, and `builds` of its build slots.
    pub(super) fn give_back(&self, client: &Arc<str>, bytes: u64, builds: u32) {
        let mut state = lock(&self.state);
        state.reserved = state.reserved.saturating_sub(bytes);
        state.builds = state.builds.saturating_sub(builds as usize);
        if let Some(share) = state.running.get_mut(client) {
            share.memory = share.memory.saturating_sub(bytes);
            share.builds = share.builds.saturating_sub(builds);
            if share.builds == 0 {
                state.running.remove(client);
            }
        }
        self.admit(&mut state);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Admits builds in the order of the queue, and reserves their memory, up to the first build that has no room: small builds do not
    /// overtake a large one. Called with every change, in the same critical section: otherwise a build could be reported as waiting behind
    /// one that fits.
    fn admit(&self, state: &mut State) {
        while let Some(entry) = state.next().cloned() {
            let fits =
                self.limit - state.reserved >= entry.bytes && (self.max_builds == 0 || state.builds < self.max_builds);
            if !fits {
                return;
            }
            state.queue.retain(|other| other.ticket != entry.ticket);
            state.reserved += entry.bytes;
            state.builds += 1;
            let share = state.running.entry(entry.client.clone()).or_default();
            (share.builds, share.memory) = (share.builds + 1, share.memory + entry.bytes);
            state.admitted.push(entry);
        }
    }
}

impl State {
    /// The queue in the order in which builds are admitted.
    fn fair_order(&self) -> Vec<Turn<'_, Entry>> {
        let asks = |entry: &Entry| Asks { client: entry.client.clone(), limits: entry.limits, memory: entry.bytes };
        fair_order(&self.queue, asks, |client| self.share(client))
    }

    fn share(&self, client: &str) -> Share {
        self.running.get(client).copied().unwrap_or_default()
    }

    fn take_admitted(&mut self, ticket: Ticket) -> Option<Entry> {
        let at = self.admitted.iter().position(|entry| entry.ticket == ticket)?;
        Some(self.admitted.swap_remove(at))
    }

    /// The build that is admitted next.
    fn next(&self) -> Option<&Entry> {
        self.fair_order().into_iter().find(|turn| !turn.held_back).map(|turn| turn.build)
    }
}

/// Why a build waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Its position in the queue, counted from 1.
    pub(crate) position: u32,
    pub(crate) reason: String,
}

/// A place in the queue, left when dropped. A build that was admitted meanwhile gives back what was reserved for it.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    ticket: Ticket,
    bytes: u64,
}

impl Place {
    /// The reservation if the build is admitted, else why it waits. Call it until it returns a reservation, and then no more.
    pub(crate) fn take(&self) -> Result<Reservation, Waits> {
        let mut state = lock(&self.admission.state);
        let Some(entry) = state.take_admitted(self.ticket) else { return Err(self.waits(&state)) };
        Ok(Reservation::new(self.admission.clone(), entry.client, entry.limits, self.bytes))
    }

    /// Bytes that the build waits for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn waits(&self, state: &State) -> Waits {
        let Admission { limit, max_builds, .. } = *self.admission;
        let order = state.fair_order();
        let before = order.iter().position(|turn| turn.build.ticket == self.ticket).unwrap_or(order.len());
        let reason = match order.get(before) {
            Some(turn) if turn.held_back => held_back(&turn.build.client),
            _ if max_builds > 0 && state.builds >= max_builds => {
                format!("the limit of {max_builds} builds at a time is reached")
            }
            _ => {
                let free = Size(limit.saturating_sub(state.reserved));
                format!("the build needs {} of memory; of {}, {free} are free", Size(self.bytes), Size(limit))
            }
        };
        Waits { position: u32::try_from(before + 1).unwrap_or(u32::MAX), reason }
    }

    /// Completes after the next change. Create it before trying [`Self::take`], so that no change is missed.
    pub(crate) fn changed(&self) -> OwnedNotified {
        self.admission.changed.clone().notified_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.admission.state);
        if let Some(at) = state.queue.iter().position(|entry| entry.ticket == self.ticket) {
            state.queue.remove(at);
            self.admission.admit(&mut state);
            drop(state);
            self.admission.changed.notify_waiters();
        } else if let Some(entry) = state.take_admitted(self.ticket) {
            drop(state);
            self.admission.give_back(&entry.client, entry.bytes, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use service::{Client, Limits};

    use super::{Admission, Full, Never, NoPlace, Place, Reservation, Waits, lock};

    fn client(name: &str, limits: Limits) -> Client {
        let client = Client::unnamed("10.0.0.7:5432".parse().unwrap());
        Client { name: Some(name.into()), limits, ..client }
    }

    fn enter(admission: &Arc<Admission>, bytes: u64) -> Place {
        admission.enter(bytes, &client("a", Limits::default())).unwrap()
    }

    #[test]
    fn clients_take_turns() {
        let admission = Admission::new(100, 1);
        let running = enter(&admission, 1).take().unwrap();
        let [a, also_a] = [enter(&admission, 1), enter(&admission, 1)];
        let b = admission.enter(1, &client("b", Limits::default())).unwrap();
        let positions = [&a, &also_a, &b].map(|place| place.take().unwrap_err().position);
        assert_eq!(positions, [2, 3, 1], "b has no running build");
        drop(running);
        assert!(a.take().is_ok(), "neither has a running build, and a came first");
    }

    #[test]
    fn a_client_s_limits_hold_back_only_its_own_builds() {
        let admission = Admission::new(100, 0);
        let limits = Limits { builds: 2, waiting: 2, memory: 50, rows: 0 };
        let enter = |bytes| admission.enter(bytes, &client("a", limits));
        assert_eq!(enter(51).unwrap_err(), NoPlace::BeyondClient(Never { needed: 51, limit: 50 }));
        let first = enter(30).unwrap().take().unwrap();
        let second = enter(10).unwrap().take().unwrap();
        let (third, fourth) = (enter(1).unwrap(), enter(30).unwrap());
        assert_eq!(enter(1).unwrap_err(), NoPlace::Waiting(2));
        assert!(third.take().is_err(), "a third build at a time");
        drop(second);
        let third = third.take().unwrap();
        assert_eq!(
            fourth.take().unwrap_err().reason,
            "a has reached its limit of builds or memory, counting running builds and those that wait before this one"
        );
        let other = admission.enter(60, &client("b", Limits::default())).unwrap().take().unwrap();
        assert_eq!(first.resize(40).unwrap_err(), Full { missing: 10, free: 9 });
        drop((other, third));
        assert_eq!(first.resize(51).unwrap_err(), Full { missing: 21, free: 20 });
        drop(first);
        assert!(fourth.take().is_ok());
        assert!(lock(&admission.state).running.is_empty(), "the last reservation was dropped at once");
    }

    #[test]
    fn small_builds_do_not_overtake_their_client_s_large_one() {
        let admission = Admission::new(100, 0);
        let limits = Limits { waiting: 2, memory: 50, ..Limits::default() };
        let enter = |bytes| admission.enter(bytes, &client("a", limits));
        let first = enter(30).unwrap().take().unwrap();
        let second = enter(40).unwrap();
        assert!(second.take().is_err(), "beyond the client's memory");
        let third = enter(10).unwrap();
        assert!(third.take().is_err(), "after the one that came before");
        drop(admission.enter(50, &client("b", limits)).unwrap().take().expect("others pass"));
        assert_eq!(enter(1).unwrap_err(), NoPlace::Waiting(2));
        drop(first);
        let _second = second.take().unwrap();
        let _third = third.take().unwrap();
        assert_eq!(admission.standing().queued, 0);
    }

    #[test]
    fn first_come_first_served() {
        let admission = Admission::new(100, 0);
        let [a, b, c] = [60, 70, 10].map(|bytes| enter(&admission, bytes));
        assert!(b.take().is_err() && c.take().is_err(), "not before the first one");
        let running = a.take().unwrap();
        assert!(b.take().is_err(), "no room");
        assert!(c.take().is_err(), "a small build does not overtake");
        assert_eq!((b.take().unwrap_err().position, c.take().unwrap_err().position), (1, 2));
        assert_eq!(b.take().unwrap_err().reason, "the build needs 70 bytes of memory; of 100 bytes, 40 bytes are free");
        drop(running);
        let running = b.take().unwrap();
        let small = c.take().unwrap();
        assert_eq!((admission.standing().reserved, admission.standing().builds), (80, 2));
        drop((running, small));
        assert_eq!((admission.standing().reserved, admission.standing().builds), (0, 0));
    }

    #[test]
    fn builds_that_fit_are_admitted_before_their_sessions_run() {
        let admission = Admission::new(100, 2);
        let [a, b, c] = [60, 40, 1].map(|bytes| enter(&admission, bytes));
        let second = b.take().expect("the first one's task has not run yet, but both have room");
        assert_eq!(c.take().unwrap_err().position, 1);
        drop(a);
        assert_eq!(admission.standing().reserved, 41, "the reservation of the build that left is free");
        drop((second, c));
        assert_eq!((admission.standing().reserved, admission.standing().builds), (0, 0));
    }

    #[test]
    fn a_client_that_leaves_the_queue_gives_up_its_position() {
        let admission = Admission::new(100, 1);
        let running = enter(&admission, 1).take().unwrap();
        let [a, b] = [2, 3].map(|bytes| enter(&admission, bytes));
        let reason = "the limit of 1 builds at a time is reached".to_owned();
        assert_eq!(b.take().unwrap_err(), Waits { position: 2, reason });
        drop(a);
        assert_eq!((b.take().unwrap_err().position, admission.standing().queued), (1, 1));
        assert!(b.take().is_err());
        drop(running);
        assert!(b.take().is_ok());
        assert_eq!(admission.standing().queued, 0);
    }

    #[test]
    fn a_build_beyond_the_limit_is_refused_at_once() {
        let admission = Admission::new(100, 0);
        let error = admission.enter(101, &client("a", Limits::default())).unwrap_err();
        assert_eq!(error, NoPlace::Never(Never { needed: 101, limit: 100 }));
        assert_eq!(admission.standing().queued, 0);
    }

    #[test]
    fn a_reservation_grows_by_what_is_free() {
        let admission = Admission::new(100, 0);
        let take = |bytes| enter(&admission, bytes);
        let (a, b): (Reservation, Reservation) = (take(40).take().unwrap(), take(30).take().unwrap());
        let waiting: Place = take(50);
        a.resize(70).unwrap();
        assert_eq!(b.resize(31).unwrap_err(), Full { missing: 1, free: 0 });
        assert_eq!((a.bytes(), b.bytes()), (70, 30));
        a.resize(20).unwrap();
        assert!(waiting.take().is_ok());
        b.release();
        assert_eq!(b.resize(10), Ok(()), "a released reservation takes nothing");
        drop((a, b));
        assert_eq!(admission.standing().reserved, 0);
    }

    #[tokio::test]
    async fn a_change_wakes_waiting_builds() {
        let admission = Admission::new(10, 0);
        let running = enter(&admission, 10).take().unwrap();
        let place = enter(&admission, 10);
        let changed = place.changed();
        assert!(place.take().is_err());
        running.release();
        changed.await;
        assert!(place.take().is_ok());
    }
}
