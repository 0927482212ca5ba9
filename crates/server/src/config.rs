use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hnsw::EngineKind;
use protocol::{DEFAULT_PORT, DEFAULT_STATUS_PORT};
use service::{Access, DaemonError, TicketGate};

/// The settings of a builder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen for builds: a name or an address.
    pub host: String,
    /// The port for builds; 0 takes any free one.
    pub port: u16,
    /// Where to listen for status requests.
    pub status_host: String,
    /// The port for status requests; 0 takes any free one.
    pub status_port: u16,
    /// Whether status shows clients' labels of builds, which are names of relations.
    pub status_labels: bool,
    /// How clients authenticate.
    pub access: Access,
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
    /// How long a client may send nothing while its rows are due, or leave sent data unread.
    pub idle_timeout: Duration,
    /// The time limit for a build, from its admission to its end; `None` for none.
    pub max_build_time: Option<Duration>,
    /// The time limit for the arrival of all rows of a build; heartbeats do not extend it.
    pub max_rows_time: Option<Duration>,
    /// How long a client has from the connection to its first frame.
    pub handshake_timeout: Duration,
    /// How long running builds may continue when the daemon shuts down.
    pub drain_timeout: Duration,
    /// The most concurrent connections. Beyond it, the oldest pending connection is closed.
    pub max_connections: usize,
    /// Connections to accept per second; further ones wait in the listen backlog.
    pub max_handshakes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: DEFAULT_PORT,
            status_host: "127.0.0.1".to_owned(),
            status_port: DEFAULT_STATUS_PORT,
            status_labels: false,
            access: Access::default(),
            tickets: None,
            lantern_without_ticket: false,
            max_rows: 0,
            engine: EngineKind::default(),
            threads: 0,
            memory_limit: 0,
            spool_dir: None,
            max_builds: 0,
            lantern_inner_product: false,
            idle_timeout: Duration::from_secs(600),
            max_build_time: None,
            max_rows_time: None,
            handshake_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            max_connections: 256,
            max_handshakes: 200,
        }
    }
}

impl Config {
    /// Whether clients must authenticate, by a token, a certificate or a ticket.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.access.asks_clients() || self.tickets.is_some()
    }

    /// Checks whether the builder may listen at its address: beyond loopback it needs TLS and authentication, unless waived.
    ///
    /// # Errors
    /// The address that other machines can reach without TLS or authentication; a host that cannot be resolved.
    pub async fn check_exposure(&self) -> Result<(), DaemonError> {
        self.access.check_exposure(&self.host, self.port, self.tickets.is_some()).await
    }
}
