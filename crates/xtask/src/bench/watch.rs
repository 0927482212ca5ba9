use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use harness::{Cluster, Session};

use super::memory;

/// How often is looked; short enough for a build of a second, long enough not to disturb it.
const PAUSE: Duration = Duration::from_millis(25);
/// Memory takes longer to count.
const MEMORY_PAUSE: Duration = Duration::from_millis(200);

/// What was seen of a build while it ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Seconds of reading the table, waiting for the graph, writing pages; to [`PAUSE`].
    pub phases: [f64; 3],
    /// The most bytes of the backend and its workers.
    pub memory: u64,
}

/// Does something while another session watches the index build of backend `pid`.
pub fn during<T>(cluster: &Cluster, database: &str, pid: u32, work: impl FnOnce() -> T) -> Result<(T, Seen)> {
    let mut watcher = cluster.session(database)?;
    let (done, over) = channel::<()>();
    thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let (mut seen, mut last, mut counted) = (Seen::default(), Instant::now(), None::<Instant>);
            while over.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let phase = phase(&mut watcher, pid);
                let now = Instant::now();
                if let Some(phase) = phase {
                    seen.phases[phase] += (now - last).as_secs_f64();
                }
                last = now;
                if counted.is_none_or(|counted| now - counted >= MEMORY_PAUSE) {
                    seen.memory = seen.memory.max(memory::of_backend(pid));
                    counted = Some(now);
                }
            }
            seen
        });
        let result = work();
        drop(done);
        Ok((result, watching.join().expect("no panic")))
    })
}

fn phase(watcher: &mut Session, pid: u32) -> Option<usize> {
    let rows = watcher.query(&format!("SELECT phase FROM pg_stat_progress_create_index WHERE pid = {pid}")).ok()?;
    let phase = rows.first()?.first()?.as_ref()?;
    ["loading tuples", "waiting for external build", "writing pages"].iter().position(|name| phase.ends_with(name))
}
