use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use service::{Activity, Readiness, Role, Shutdown, StatusServer, TicketKey};
use tokio::net::{TcpListener, lookup_host};
use tokio::time::timeout;
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
use crate::spawner::Spawner;

/// Builders of one machine share its memory, and each knows what it can take.
const ANY_SIZE: (u64, u64) = (0, 0);
/// How long sessions may take to say that the router is shutting down.
const FAREWELL: Duration = Duration::from_secs(3);

/// What all sessions share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
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
    listener: TcpListener,
    address: SocketAddr,
    status: StatusServer,
    shared: Arc<Shared>,
}

impl Router {
    /// Listens on the two ports and starts the pool of builders.
    ///
    /// # Errors
    /// An address that cannot be used, plaintext beyond loopback that was not asked for, no source of builders.
    pub async fn bind(config: Config) -> Result<Self, RouterError> {
        check_plaintext(&config).await?;
        let bind = |source| RouterError::Bind { host: config.host.clone(), port: config.port, source };
        let listener = TcpListener::bind((config.host.as_str(), config.port)).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let activity = Activity::new(Role::Router, env!("CARGO_PKG_VERSION"), config.status_labels)
            .map_err(|error| RouterError::Metrics(error.to_string()))?;
        let activity = Arc::new(activity);
        let status = StatusServer::start(&config.status_host, config.status_port, activity.clone())?;
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
        let pool = Pool::start(rules, spawner, key);
        let snapshot = pool.snapshot();
        activity.set_builders(move || snapshot.borrow().builders.iter().map(BuilderState::report).collect());
        let shared = Arc::new(Shared {
            config,
            pool,
            activity,
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        Ok(Self { listener, address, status, shared })
    }

    /// Where it listens for clients.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens for status requests.
    #[must_use]
    pub fn status_addr(&self) -> SocketAddr {
        self.status.local_addr()
    }

    /// Serves until `shutdown` says to drain: accepts no more, gives relayed builds the grace period, then stops.
    pub async fn run(self, shutdown: Shutdown) {
        let Self { listener, address: _, status, shared } = self;
        shared.activity.set_readiness(Readiness::Ready);
        tokio::select! {
            () = listener::accept(&listener, &shared) => {}
            () = shutdown.drain.cancelled() => {}
            () = shutdown.abort.cancelled() => {}
        }
        drop(listener);
        shared.activity.set_readiness(Readiness::Draining);
        shared.drain.cancel();
        shared.tasks.close();
        tokio::select! {
            _ = timeout(shared.config.grace, shared.tasks.wait()) => {}
            () = shutdown.abort.cancelled() => {}
        }
        shared.stop.cancel();
        if timeout(FAREWELL, shared.tasks.wait()).await.is_err() {
            tracing::warn!(connections = shared.tasks.len(), "ended without waiting for all builds");
        }
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
    let resolve = |source| RouterError::Resolve { host: config.host.clone(), source };
    let mut addresses = lookup_host((config.host.as_str(), config.port)).await.map_err(resolve)?;
    match addresses.find(|address| !address.ip().to_canonical().is_loopback()) {
        Some(address) => Err(RouterError::Plaintext(address)),
        None => Ok(()),
    }
}
