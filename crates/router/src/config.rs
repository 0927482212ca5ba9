use std::sync::Arc;
use std::time::Duration;

use protocol::Hello;
use service::{Listening, TicketKeys};

use crate::fixed::FixedBuilder;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::KubernetesConfig;
use crate::process::ProcessConfig;
use crate::scheduler::Rules;
use crate::tls::BuilderTls;

/// How a router connects a client with its builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The router relays all bytes between client and builder.
    Relay,
    /// The router redirects the client to the builder, and relays clients that do not support redirects.
    Redirect,
}

/// The source of builders.
#[derive(Clone, Debug)]
pub enum Source {
    /// Processes on this machine.
    Process(ProcessConfig),
    /// A fixed list of builders, with the ticket keys if these builders require tickets.
    Static(Vec<FixedBuilder>, Option<Arc<TicketKeys>>),
    /// Kubernetes pods, with the least and most memory of a pod in bytes; 0 leaves the memory of the pod template.
    #[cfg(feature = "kubernetes")]
    Kubernetes(KubernetesConfig, (u64, u64)),
}

/// The settings of a router.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ports and connections.
    pub listening: Listening,
    /// How the router verifies builders' certificates; `None` if connections to builders are not encrypted.
    pub builder_tls: Option<Arc<BuilderTls>>,
    /// The name in the builders' certificate; empty if they show the router's own certificate.
    pub builder_name: String,
    /// Relay or redirect.
    pub mode: Mode,
    /// Where builders come from.
    pub source: Source,
    /// How many builders there are and when they start and stop. `memory` is ignored: the source has it.
    pub rules: Rules,
    /// How long relayed builds may continue when the daemon shuts down.
    pub grace: Duration,
    /// The time limit for a build, from the grant of a builder to its end; `None` for none.
    pub max_build_time: Option<Duration>,
    /// Returns the memory in bytes that a builder reserves for a build; `u64::MAX` if it is not known. The caller passes the builder's
    /// formulas, since the router does not link the engine.
    pub need_of: fn(&Hello) -> u64,
    /// Returns the memory in bytes of a builder that may use this many bytes for a build.
    pub machine_for: fn(u64) -> u64,
}

impl Config {
    /// The most concurrent connections by default: far more than of a builder, as many clients may wait.
    pub const MAX_CONNECTIONS: u32 = 1024;

    /// The default settings, with builders from `source`, whose memory `need_of` and `machine_for` compute.
    #[must_use]
    pub fn new(source: Source, need_of: fn(&Hello) -> u64, machine_for: fn(u64) -> u64) -> Self {
        Self {
            listening: Listening { max_connections: Self::MAX_CONNECTIONS, ..Listening::default() },
            builder_tls: None,
            builder_name: String::new(),
            mode: Mode::Relay,
            source,
            rules: Rules::default(),
            grace: Duration::from_secs(10),
            max_build_time: None,
            need_of,
            machine_for,
        }
    }

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
}
