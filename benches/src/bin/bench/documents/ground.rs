use std::time::Instant;

use anyhow::Result;
use harness::{Builder, BuilderOptions, Cluster, Column};

use super::super::options::SetOptions;
use super::super::peer::Tools;
use super::super::set::Set;
use super::super::stage;
use super::Sizes;

/// What all benchmarks share.
pub struct Ground {
    pub tools: Tools,
    pub sizes: Sizes,
    started: Instant,
}

impl Ground {
    /// Finds PostgreSQL and the programs.
    pub fn find(sizes: &Sizes) -> Result<Self> {
        Ok(Self { tools: Tools::find(false)?, sizes: sizes.clone(), started: Instant::now() })
    }

    /// Starts the time limit of the next benchmark.
    pub fn begin(&mut self) {
        self.started = Instant::now();
    }

    /// Whether the time limit has passed: the benchmark then skips the rest, and its section says so.
    pub fn is_over(&self) -> bool {
        self.started.elapsed().as_secs() > self.seconds()
    }

    /// The time limit of a benchmark in seconds.
    pub fn seconds(&self) -> u64 {
        60 * self.sizes.minutes
    }

    /// A set as for `--set` of `bench` (`minilm-384`, `synthetic-1536`, …) under cosine, with its true neighbors.
    pub fn set(&self, name: &str, rows: usize, queries: usize) -> Result<Set> {
        Set::find(
            name,
            &SetOptions { queries_from: None, rows: Some(rows), queries, metric: None, column: Column::Vector },
        )
    }

    /// A cluster with ample memory and workers; `settings` are further lines of its configuration. It does not wait for the disk, like all
    /// clusters of the harness. Statements time out after a benchmark's time limit.
    pub fn cluster(&self, settings: &str) -> Result<Cluster> {
        let own = format!("statement_timeout = {}s\n", self.seconds());
        Cluster::start_with(self.tools.config.clone(), &format!("{}{own}{settings}\n", stage::settings()))
    }

    /// A builder on this machine, with TLS and these further flags of `serve`.
    pub fn builder(&self, arguments: &[&str]) -> Result<Builder> {
        Builder::start_with(&BuilderOptions::serve(arguments).by(&self.tools.program))
    }

    /// Settings for the best build in the database: memory for the graph of `set`, and a parallel worker for
    /// each further one of `cores`, at least one.
    pub fn build_settings(set: &Set, m: u32, cores: usize) -> String {
        let workers = (cores - 1).max(1);
        format!(
            "SET maintenance_work_mem = '{}MB'; SET max_parallel_maintenance_workers = {workers}",
            set.graph_megabytes(m)
        )
    }
}
