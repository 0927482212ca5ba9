use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hnsw::EngineKind;
use protocol::{DEFAULT_PORT, DEFAULT_STATUS_PORT};
use service::{TicketGate, Tls, Tokens};

/// How a builder is set up.
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
    /// Whether status shows what clients call their builds, which are names of relations.
    pub status_labels: bool,
    /// The certificate and key, when connections are encrypted.
    pub tls: Option<Arc<Tls>>,
    /// Whom to let in, when only those that a router sends.
    pub tickets: Option<Arc<TicketGate>>,
    /// With `tickets`: whether Lantern's clients, which cannot show one, are let in all the same.
    pub lantern_without_ticket: bool,
    /// Without `tls`: whether to listen where other machines can connect. Rows would cross the network readable.
    pub allow_plaintext_beyond_loopback: bool,
    /// Secrets of which clients must know one.
    pub tokens: Option<Arc<Tokens>>,
    /// Whether to listen where other machines can connect without asking them who they are.
    pub allow_anonymous: bool,
    /// The most rows that a build may have; 0 for as many as there is memory for.
    pub max_rows: u64,
    /// What builds the graphs.
    pub engine: EngineKind,
    /// Threads for the CPU work of each build; 0 takes one per core.
    pub threads: usize,
    /// Bytes of memory that all builds together may take; 0 takes what the system or the control group has, less a margin.
    pub memory_limit: u64,
    /// Where values of builds go that do not fit into memory.
    pub spool_dir: Option<PathBuf>,
    /// Builds at a time; 0 for as many as there is memory for.
    pub max_builds: usize,
    /// Whether what a Lantern client announces as cosine is inner product: it calls both so.
    pub lantern_inner_product: bool,
    /// How long a client may be silent while its rows are due, or leave unread what it was sent.
    pub idle_timeout: Duration,
    /// How long a client has from the connection to its first frame.
    pub handshake_timeout: Duration,
    /// How long builds may go on when the daemon shuts down.
    pub drain_timeout: Duration,
    /// Connections at a time. When there are more, the oldest of those that have not said what they want is closed.
    pub max_connections: usize,
    /// Connections to accept per second; more wait to be accepted.
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
            tls: None,
            tickets: None,
            lantern_without_ticket: false,
            allow_plaintext_beyond_loopback: false,
            tokens: None,
            allow_anonymous: false,
            max_rows: 0,
            engine: EngineKind::default(),
            threads: 0,
            memory_limit: 0,
            spool_dir: None,
            max_builds: 0,
            lantern_inner_product: false,
            idle_timeout: Duration::from_secs(600),
            handshake_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            max_connections: 256,
            max_handshakes: 200,
        }
    }
}
