use crate::BuildError;

/// The threads that do the CPU work of all builds: named, and at lower priority than the threads that move bytes.
pub struct Pool {
    threads: rayon::ThreadPool,
}

impl Pool {
    /// Starts `threads` threads, or one per available core for 0.
    ///
    /// # Errors
    /// [`BuildError::Memory`] when the system has no room for more threads.
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
}

/// On Linux each thread has its own nice value. A failure only costs fairness.
fn lower_priority() {
    let _ = rustix::process::nice(5);
}
