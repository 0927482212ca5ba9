use std::thread;
use std::time::{Duration, Instant};

use crate::{Builder, Cluster, cpu_seconds};

/// What a piece of work takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Elapsed seconds.
    pub seconds: f64,
    /// CPU seconds of all of PostgreSQL's processes.
    pub database: f64,
    /// CPU seconds of the builder.
    pub builder: f64,
}

impl Cost {
    /// All CPU seconds.
    pub fn cpu(&self) -> f64 {
        self.database + self.builder
    }
}

/// Runs `work` and measures its cost.
pub fn cost<T>(cluster: &Cluster, builder: Option<&Builder>, work: impl FnOnce() -> T) -> (T, Cost) {
    let cpu = || (cluster.cpu_seconds(), builder.and_then(Builder::pid).map_or(0.0, cpu_seconds));
    let (before, start) = (cpu(), Instant::now());
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    // CPU time of parallel workers counts once the postmaster has waited for them.
    thread::sleep(Duration::from_millis(300));
    let after = cpu();
    (result, Cost { seconds, database: after.0 - before.0, builder: after.1 - before.1 })
}
