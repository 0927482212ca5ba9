use std::net::SocketAddr;
use std::sync::Arc;

use service::{Activity, Daemon, DaemonError, Ending, Role, Shutdown, TicketKey, exposed};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::book::Rules;
use crate::config::{Config, Source};
use crate::error::RouterError;
use crate::fixed::Fixed;
use crate::kubernetes::Pods;
use crate::listener;
use crate::pool::{BuilderState, Pool};
use crate::process::Processes;
use crate::sent::Sent;
use crate::spawner::Spawner;

/// Builders of one machine share its memory, and each knows what it can take.
const ANY_SIZE: (u64, u64) = (0, 0);

/// What all sessions share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) sent: Arc<Sent>,
    pub(crate) activity: Arc<Activity>,
    /// No new builds.
    pub(crate) drain: CancellationToken,
    /// Relayed builds stop now.
    pub(crate) stop: CancellationToken,
    /// The sessions.
    pub(crate) tasks: TaskTracker,
}

/// A router that listens, but does not accept before [`Router::run`].
pub struct Router {
    daemon: Daemon,
    shared: Arc<Shared>,
}

impl Router {
    /// Listens on the two ports and starts the pool of builders.
    ///
    /// # Errors
    /// An address that cannot be used, plaintext beyond loopback that was not asked for, no source of builders.
    pub async fn bind(config: Config) -> Result<Self, RouterError> {
        check_plaintext(&config).await?;
        let (clients, status) = ((&*config.host, config.port), (&*config.status_host, config.status_port));
        let version = env!("CARGO_PKG_VERSION");
        let daemon = Daemon::bind(Role::Router, version, config.status_labels, clients, status).await?;
        let (activity, Ending { drain, stop, tasks }) = (daemon.activity(), daemon.ending());
        let (spawner, key, memory) = source(&config).await?;
        let rules = Rules {
            min_builders: config.min_builders,
            max_builders: config.max_builders,
            spare_builders: config.spare_builders,
            idle_ttl: config.idle_ttl,
            start_timeout: config.start_timeout,
            memory,
            ..Rules::default()
        };
        let pool = Pool::start(rules, spawner, key, activity.clone());
        let snapshot = pool.snapshot();
        activity.set_builders(move || snapshot.borrow().builders.iter().map(BuilderState::report).collect());
        let shared = Arc::new(Shared { config, pool, sent: Arc::default(), activity, drain, stop, tasks });
        Ok(Self { daemon, shared })
    }

    /// Where it listens for clients.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.daemon.local_addr()
    }

    /// Where it listens for status requests.
    #[must_use]
    pub fn status_addr(&self) -> SocketAddr {
        self.daemon.status_addr()
    }

    /// Serves until `shutdown` says to drain: accepts no more, gives relayed builds the grace period, then stops.
    pub async fn run(self, shutdown: Shutdown) {
        let Self { daemon, shared } = self;
        let accept = async |listener: &TcpListener| listener::accept(listener, &shared).await;
        let status = daemon.run(shutdown, shared.config.grace, accept).await;
        shared.pool.close().await;
        drop(status);
    }
}

/// Where builders come from, the key for their tickets, and the least and most memory of one.
async fn source(config: &Config) -> Result<(Arc<dyn Spawner>, Option<TicketKey>, (u64, u64)), RouterError> {
    match &config.source {
        Source::Process(process) => {
            let text = TicketKey::generate().map_err(|error| RouterError::Source(error.to_string()))?;
            let key = TicketKey::from_text(&text);
            let processes =
                Processes::new(process.clone(), &text).map_err(|error| RouterError::Source(error.to_string()))?;
            Ok((Arc::new(processes), Some(key), ANY_SIZE))
        }
        Source::Static(builders, file) => {
            let key = file.as_deref().map(TicketKey::read).transpose();
            let key = key.map_err(|error| RouterError::Source(error.to_string()))?;
            Ok((Arc::new(Fixed::new(builders.clone())), key, ANY_SIZE))
        }
        Source::Kubernetes(kubernetes, memory) => {
            let failed = |error: &dyn std::fmt::Display| RouterError::Source(error.to_string());
            let key = TicketKey::read(&kubernetes.ticket_key).map_err(|error| failed(&error))?;
            let pods = Pods::connect(kubernetes, config.max_builders).await.map_err(|error| failed(&error))?;
            Ok((Arc::new(pods), Some(key), *memory))
        }
    }
}

async fn check_plaintext(config: &Config) -> Result<(), RouterError> {
    if config.tls.is_some() || config.allow_plaintext_beyond_loopback {
        return Ok(());
    }
    match exposed(&config.host, config.port).await? {
        Some(address) => Err(DaemonError::Plaintext(address).into()),
        None => Ok(()),
    }
}
