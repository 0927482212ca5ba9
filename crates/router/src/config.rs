use std::sync::Arc;
use std::time::Duration;

use protocol::{DEFAULT_PORT, DEFAULT_STATUS_PORT, Hello};
use service::{Access, DaemonError, TicketKeys};

use crate::fixed::FixedBuilder;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::KubernetesConfig;
use crate::process::ProcessConfig;
use crate::tls::BuilderTls;

/// What a router does with a client when it has a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It relays all bytes between client and builder.
    Relay,
    /// It redirects the client to the builder. Clients that do not support that are relayed.
    Redirect,
}

/// Where builders come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Processes on this machine.
    Process(ProcessConfig),
    /// A fixed list, and the ticket keys if these builders require tickets.
    Static(Vec<FixedBuilder>, Option<Arc<TicketKeys>>),
    /// Pods, and the least and most memory of one, in bytes; 0 leaves it as the template has it.
    #[cfg(feature = "kubernetes")]
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
    /// How clients authenticate.
    pub access: Access,
    /// How builders' certificates are verified, when connections to them are encrypted.
    pub builder_tls: Option<Arc<BuilderTls>>,
    /// The name that the builders' certificate is for, when it is not the router's.
    pub builder_name: String,
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
    /// How long builders beyond these numbers may be idle.
    pub idle_ttl: Duration,
    /// How long a client waits for a builder that starts.
    pub start_timeout: Duration,
    /// How long a client has from the connection to its Hello.
    pub handshake_timeout: Duration,
    /// How long relayed builds may go on when the daemon shuts down.
    pub grace: Duration,
    /// How long a client may be silent while it waits or sends rows, or may leave data unread.
    pub idle_timeout: Duration,
    /// The time limit for a build, from the grant of a builder to its end; `None` for none.
    pub max_build_time: Option<Duration>,
    /// Connections at a time. Beyond it the oldest pending connection is closed.
    pub max_connections: usize,
    /// Connections to accept per second; more wait.
    pub max_handshakes: u32,
    /// Memory in bytes that a builder needs for a build; `u64::MAX` means the maximum. The caller passes the builder's own formula,
    /// since the router does not link the engine.
    pub memory_for: fn(&Hello) -> u64,
}

impl Config {
    /// The defaults, with builders from `source` of the memory that `memory_for` returns.
    #[must_use]
    pub fn new(source: Source, memory_for: fn(&Hello) -> u64) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: DEFAULT_PORT,
            status_host: "127.0.0.1".to_owned(),
            status_port: DEFAULT_STATUS_PORT,
            status_labels: false,
            access: Access::default(),
            builder_tls: None,
            builder_name: String::new(),
            mode: Mode::Relay,
            source,
            min_builders: 0,
            max_builders: 4,
            spare_builders: 0,
            idle_ttl: Duration::from_secs(300),
            start_timeout: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(600),
            max_build_time: None,
            max_connections: 1024,
            max_handshakes: 200,
            memory_for,
        }
    }
}

impl Config {
    /// The ticket keys that come from a file.
    #[must_use]
    pub fn ticket_keys(&self) -> Option<Arc<TicketKeys>> {
        match &self.source {
            Source::Process(_) => None,
            Source::Static(_, keys) => keys.clone(),
            #[cfg(feature = "kubernetes")]
            Source::Kubernetes(kubernetes, _) => Some(kubernetes.ticket_keys.clone()),
        }
    }

    /// Checks whether the router may listen at its address.
    ///
    /// # Errors
    /// The address that other machines can reach.
    pub async fn check_exposure(&self) -> Result<(), DaemonError> {
        self.access.check_exposure(&self.host, self.port, false).await
    }
}
