//! CPU time of threads during a statement.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use harness::{beside, thread_cpu_seconds};

use super::replay;

/// Interval of samples.
const PAUSE: Duration = Duration::from_millis(10);

/// The parties to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The backend's own thread.
    Backend,
    /// The backend's thread with the connection to the builder.
    Connection,
    /// Parallel workers.
    Worker,
    /// Threads of the builder.
    Builder,
}

impl Party {
    pub const ALL: [Self; 4] = [Self::Backend, Self::Connection, Self::Worker, Self::Builder];
}

/// Where the builder's threads run.
#[derive(Clone, Copy, Debug)]
pub enum Builder {
    None,
    Process(u32),
    /// A thread of this process replays a recording.
    Replay,
}

/// The processes to sample.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    pub postmaster: u32,
    pub backend: u32,
    pub builder: Builder,
}

/// CPU seconds by party in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// The busiest thread of each of [`Party::ALL`].
    pub busiest: [f64; Party::ALL.len()],
    /// All threads of the builder together.
    pub builder: f64,
}

/// Samples of a thread: time, and CPU seconds until then.
struct Thread {
    party: Party,
    samples: Vec<(Instant, f64)>,
}

impl Thread {
    /// CPU seconds until `when`, interpolated between samples.
    fn by(&self, when: Instant) -> f64 {
        let after = self.samples.partition_point(|&(time, _)| time <= when);
        let before = after.checked_sub(1).map(|at| self.samples[at]);
        match (before, self.samples.get(after)) {
            (Some((from, least)), Some(&(to, most))) => {
                let share = (when - from).as_secs_f64() / (to - from).as_secs_f64();
                least + share * (most - least)
            }
            (Some((_, last)), None) => last,
            (None, first) => first.map_or(0.0, |&(_, first)| first),
        }
    }
}

/// The samples of all threads.
pub struct Timeline(Vec<Thread>);

impl Timeline {
    pub fn used(&self, from: Instant, to: Instant) -> Used {
        let mut used = Used::default();
        for thread in &self.0 {
            let seconds = thread.by(to) - thread.by(from);
            let busiest = &mut used.busiest[thread.party as usize];
            *busiest = seconds.max(*busiest);
            if thread.party == Party::Builder {
                used.builder += seconds;
            }
        }
        used
    }
}

/// Runs `work` while another thread takes samples.
pub fn during<T>(watched: Watched, work: impl FnOnce() -> T) -> (T, Timeline) {
    let mut seen = Seen::new(watched);
    let result = beside(PAUSE, || seen.look(), work);
    (result, Timeline(seen.threads.into_values().collect()))
}

struct Seen {
    watched: Watched,
    /// The server's processes before the statement.
    others: Vec<u32>,
    threads: HashMap<(u32, u32), Thread>,
    /// The time of the last sample.
    last: Option<Instant>,
}

impl Seen {
    fn new(watched: Watched) -> Self {
        let mut seen = Self { watched, others: children(watched.postmaster), threads: HashMap::new(), last: None };
        seen.look();
        seen
    }

    fn look(&mut self) {
        let now = Instant::now();
        let Watched { postmaster, backend, builder } = self.watched;
        self.process(backend, |process, thread| {
            Some(if thread == process { Party::Backend } else { Party::Connection })
        });
        for worker in children(postmaster) {
            if !self.others.contains(&worker) {
                self.process(worker, |_, _| Some(Party::Worker));
            }
        }
        match builder {
            Builder::None => {}
            Builder::Process(pid) => self.process(pid, |_, _| Some(Party::Builder)),
            Builder::Replay => self.process(std::process::id(), |process, thread| {
                let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).ok()?;
                (name.trim_end() == replay::THREAD).then_some(Party::Builder)
            }),
        }
        self.last = Some(now);
    }

    fn process(&mut self, pid: u32, party: impl Fn(u32, u32) -> Option<Party>) {
        let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for tid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let seconds = thread_cpu_seconds(&format!("/proc/{pid}/task/{tid}"));
            let (Some(seconds), now) = (seconds, Instant::now()) else { continue };
            if !self.threads.contains_key(&(pid, tid)) {
                let Some(party) = party(pid, tid) else { continue };
                // A thread that is new since the last sample had used no CPU time then.
                let samples = self.last.map(|last| (last, 0.0)).into_iter().collect();
                self.threads.insert((pid, tid), Thread { party, samples });
            }
            if let Some(thread) = self.threads.get_mut(&(pid, tid)) {
                thread.samples.push((now, seconds));
            }
        }
    }
}

/// The processes that a process' first thread has started. Unlike the harness' function it does not read the files of all processes, which
/// would take too long for a sample.
fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// What a thread must have used to be seen.
    const WORK: f64 = 0.02;

    fn work() {
        let used = || thread_cpu_seconds("/proc/thread-self").expect("the system counts CPU time");
        let before = used();
        while used() < before + WORK {
            black_box(0);
        }
    }

    #[test]
    fn a_replaying_thread_counts_as_the_builder() {
        let ((tell, hear), (done, over)) = (channel(), channel());
        let busy = thread::Builder::new().name(replay::THREAD.into()).spawn(move || {
            hear.recv().unwrap();
            work();
            done.send(()).unwrap();
            // A thread that has ended is not sampled.
            hear.recv().unwrap_err();
        });
        let own = std::process::id();
        let watched = Watched { postmaster: own, backend: 1, builder: Builder::Replay };
        let start = Instant::now();
        let ((), seen) = during(watched, || {
            tell.send(()).unwrap();
            over.recv().unwrap();
        });
        drop(tell);
        busy.unwrap().join().unwrap();
        let used = seen.used(start, Instant::now());
        assert!(used.builder > 0.99 * WORK, "{used:?}");
        assert_eq!(used.busiest[Party::Worker as usize], 0.0);
    }

    #[test]
    fn the_busiest_thread_of_each_party_counts_and_all_of_the_builder() {
        let (start, end) = (Instant::now(), Instant::now() + Duration::from_secs(5));
        let thread = |party, seconds| Thread { party, samples: vec![(start, 0.5), (end, 0.5 + seconds)] };
        let of = [(Party::Builder, 1.0), (Party::Builder, 3.0), (Party::Worker, 2.0), (Party::Builder, 2.0)];
        let used = Timeline(of.map(|(party, seconds)| thread(party, seconds)).into()).used(start, end);
        assert_eq!(used, Used { busiest: [0.0, 0.0, 2.0, 3.0], builder: 6.0 });
    }

    #[test]
    fn cpu_seconds_are_interpolated_between_samples() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let thread = Thread { party: Party::Backend, samples: vec![(at(10), 1.0), (at(20), 2.0)] };
        for (ms, seconds) in [(0, 1.0), (10, 1.0), (15, 1.5), (20, 2.0), (99, 2.0)] {
            assert!((thread.by(at(ms)) - seconds).abs() < 1e-9, "{ms}");
        }
    }
}
