use std::fs;

use harness::proc_bytes;

/// Results and costs of searches, summed over queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// The number of queries.
    pub queries: usize,
    /// Rows found that are among the ten nearest.
    pub hits: usize,
    /// Distances computed, which are index tuples visited.
    pub distances: u64,
    /// Distinct pages read per query, summed; 0 for a graph without pages.
    pub pages: u64,
}

impl Found {
    /// The figures as a line for other programs: `ef 40 recall 0.98 distances 812.5 pages 210.0`.
    pub fn line(&self, ef: usize) -> String {
        let each = |sum: u64| sum as f64 / self.queries.max(1) as f64;
        format!(
            "ef {ef} recall {:.5} distances {:.1} pages {:.1}",
            self.recall(),
            each(self.distances),
            each(self.pages)
        )
    }

    /// The fraction of true neighbors that were found.
    pub fn recall(&self) -> f64 {
        self.hits as f64 / (10 * self.queries).max(1) as f64
    }
}

/// The memory used since a start point.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    before: u64,
}

impl Memory {
    /// Starts the measurement.
    pub fn watch() -> Self {
        // What is free would not count when it is used again.
        hnsw::memory::give_back();
        // Resets the peak. If that fails, the result may be too small, but never too large.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self { before: proc_bytes("/proc/self/status", "VmRSS") }
    }

    /// Peak bytes since the start, minus the bytes used at the start.
    pub fn peak(self) -> u64 {
        proc_bytes("/proc/self/status", "VmHWM").saturating_sub(self.before)
    }
}
