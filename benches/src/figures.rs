use std::fs;

/// The values of ef_search that graphs are tried with.
pub const EF_SEARCH: [usize; 3] = [40, 100, 200];

/// Results and costs of searches, as sums over queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Queries asked.
    pub queries: usize,
    /// Rows found that are among the ten nearest.
    pub hits: usize,
    /// Distances computed, which is index tuples visited.
    pub distances: u64,
    /// Pages of the index read, each counted once per query; 0 for a graph without pages.
    pub pages: u64,
}

impl Found {
    /// A line for programs: `ef 40 recall 0.98 distances 812.5 pages 210.0`.
    pub fn line(&self, ef: usize) -> String {
        let each = |sum: u64| sum as f64 / self.queries.max(1) as f64;
        format!(
            "ef {ef} recall {:.5} distances {:.1} pages {:.1}",
            self.recall(),
            each(self.distances),
            each(self.pages)
        )
    }

    /// The share of the true neighbors that was found.
    pub fn recall(&self) -> f64 {
        self.hits as f64 / (10 * self.queries).max(1) as f64
    }
}

/// Memory used since this was made.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    before: u64,
}

impl Memory {
    /// Begins to watch.
    pub fn watch() -> Self {
        // Resets the peak so far; if that fails, the figure may be too small, never too large.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self { before: status("VmRSS:") }
    }

    /// The peak bytes since then, beyond those used at that time.
    pub fn peak(self) -> u64 {
        status("VmHWM:").saturating_sub(self.before)
    }
}

fn status(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0u64) * 1024
}
