use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hnsw::EngineKind;
use service::{Listening, TicketGate};

/// The settings of a builder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ports and connections.
    pub listening: Listening,
    /// Verifies tickets; `None` if clients need not come through a router.
    pub tickets: Option<Arc<TicketGate>>,
    /// With `tickets`: whether to accept Lantern's clients, which have no tickets, without one.
    pub lantern_without_ticket: bool,
    /// The most rows of a build; 0 means as many as fit into memory.
    pub max_rows: u64,
    /// The engine that builds graphs.
    pub engine: EngineKind,
    /// Threads for the CPU work of each build; 0 takes one per core.
    pub threads: usize,
    /// Bytes of memory for all builds together; 0 means the memory of the system or the control group, less a margin.
    pub memory_limit: u64,
    /// The directory for values of builds that do not fit into memory.
    pub spool_dir: Option<PathBuf>,
    /// The most builds at a time; 0 means as many as fit into memory.
    pub max_builds: usize,
    /// Whether to build cosine announced by Lantern's clients as inner product: they announce both as cosine.
    pub lantern_inner_product: bool,
    /// The time limit for a build, from its admission to its end; `None` for none.
    pub max_build_time: Option<Duration>,
    /// The time limit for the arrival of all rows of a build; heartbeats do not extend it.
    pub max_rows_time: Option<Duration>,
    /// How long running builds may continue when the daemon shuts down.
    pub drain_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listening: Listening::default(),
            tickets: None,
            lantern_without_ticket: false,
            max_rows: 0,
            engine: EngineKind::default(),
            threads: 0,
            memory_limit: 0,
            spool_dir: None,
            max_builds: 0,
            lantern_inner_product: false,
            max_build_time: None,
            max_rows_time: None,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Whether clients must authenticate, by a token, a certificate or a ticket.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.listening.access.asks_clients() || self.tickets.is_some()
    }
}
