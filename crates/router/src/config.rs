use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{DEFAULT_PORT, DEFAULT_STATUS_PORT, Hello};

use crate::fixed::FixedBuilder;
use crate::kubernetes::KubernetesConfig;
use crate::process::ProcessConfig;
use crate::tls::BuilderTls;

/// What a router does with a client when it has a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It passes on the bytes between client and builder.
    Relay,
    /// It sends the client to the builder. Clients that cannot be sent are relayed.
    Redirect,
}

/// Where builders come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Processes on this machine.
    Process(ProcessConfig),
    /// A list, and the file with the secret for tickets if these builders ask for such.
    Static(Vec<FixedBuilder>, Option<PathBuf>),
    /// Pods, and the least and most memory of one, in bytes; 0 leaves it as the template has it.
    Kubernetes(KubernetesConfig, (u64, u64)),
}

/// How a router is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen for clients: a name or an address.
    pub host: String,
    /// The port for clients; 0 takes any free one.
    pub port: u16,
    /// Where to listen for status requests.
    pub status_host: String,
    /// The port for status requests; 0 takes any free one.
    pub status_port: u16,
    /// Whether status shows the names of relations.
    pub status_labels: bool,
    /// The certificate and key, when connections of clients are encrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// How to know builders, when connections to them are encrypted.
    pub builder_tls: Option<BuilderTls>,
    /// The name that the builders' certificate is for, when it is not the router's.
    pub builder_name: String,
    /// Without `tls`: whether to listen where other machines can connect.
    pub allow_plaintext_beyond_loopback: bool,
    /// Relay or redirect.
    pub mode: Mode,
    /// Where builders come from.
    pub source: Source,
    /// Builders that are kept, idle or not.
    pub min_builders: usize,
    /// The most builders at a time.
    pub max_builders: usize,
    /// Builders that are kept idle besides the busy ones.
    pub spare_builders: usize,
    /// How long other builders may be idle.
    pub idle_ttl: Duration,
    /// How long a client waits for a builder that starts.
    pub start_timeout: Duration,
    /// How long a client has from the connection to its Hello.
    pub handshake_timeout: Duration,
    /// How long relayed builds may go on when the daemon shuts down.
    pub grace: Duration,
    /// Connections at a time; more wait to be accepted.
    pub max_connections: usize,
    /// Memory in bytes that a builder for such a build is to have; `u64::MAX`: as much as there may be. The builder's own estimate,
    /// from whoever knows both: a router builds nothing.
    pub memory_for: fn(&Hello) -> u64,
}

impl Config {
    /// The defaults, with builders from `source`, as large as `memory_for` says.
    #[must_use]
    pub fn new(source: Source, memory_for: fn(&Hello) -> u64) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: DEFAULT_PORT,
            status_host: "127.0.0.1".to_owned(),
            status_port: DEFAULT_STATUS_PORT,
            status_labels: false,
            tls: None,
            builder_tls: None,
            builder_name: String::new(),
            allow_plaintext_beyond_loopback: false,
            mode: Mode::Relay,
            source,
            min_builders: 0,
            max_builders: 4,
            spare_builders: 0,
            idle_ttl: Duration::from_secs(300),
            start_timeout: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            max_connections: 1024,
            memory_for,
        }
    }
}
