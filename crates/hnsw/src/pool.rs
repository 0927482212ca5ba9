//! The threads on which builds do their CPU work.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::BuildError;

/// Threads for the CPU work of builds: named, and at lower priority than the threads that do I/O.
pub struct Pool {
    threads: rayon::ThreadPool,
}

impl Pool {
    /// Starts `threads` threads, or one per available core for 0.
    ///
    /// # Errors
    /// [`BuildError::Memory`] if the system cannot start the threads.
    pub fn new(threads: usize) -> Result<Self, BuildError> {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("hnsw-{index}"))
            .start_handler(|_| lower_priority())
            .build()
            .map_err(|error| BuildError::Memory(error.to_string()))?;
        Ok(Self { threads })
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Runs `work` on the pool; parallel iterators inside use its threads.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.threads.install(work)
    }

    /// CPU time of the pool's threads and of the calling thread, which must not be one of them. Waits until all of the pool's threads are
    /// idle.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let own = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        own() + self.threads.broadcast(|_| own()).into_iter().sum::<Duration>()
    }
}

/// On Linux each thread has its own nice value. A failure only costs fairness.
fn lower_priority() {
    let _ = rustix::process::nice(5);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Pool;

    /// The nice value of this thread: the 17th field after its name.
    #[cfg(target_os = "linux")]
    fn nice() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_run_at_lower_priority() {
        let expected = (nice() + 5).min(19);
        assert!(Pool::new(3).unwrap().threads.broadcast(|_| nice()).into_iter().all(|found| found == expected));
    }

    #[test]
    fn work_takes_cpu_time_and_waiting_does_not() {
        let pool = Pool::new(2).unwrap();
        let work = || {
            let (start, before) = (Instant::now(), pool.cpu_time());
            while pool.cpu_time() < before + Duration::from_millis(20) {
                pool.run(|| std::hint::black_box((0..100_000u64).map(std::hint::black_box).sum::<u64>()));
                assert!(start.elapsed() < Duration::from_secs(60), "no CPU time");
            }
        };
        work();
        let before = pool.cpu_time();
        pool.run(|| std::thread::sleep(Duration::from_millis(200)));
        let taken = pool.cpu_time() - before;
        assert!(taken < Duration::from_millis(100), "{taken:?}");
    }
}
