use std::sync::Arc;

use service::{Activity, Daemon, Door, Ending, Role, Shutdown, TicketKeys};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Source};
use crate::error::RouterError;
use crate::fixed::Fixed;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::Pods;
use crate::pool::Pool;
use crate::process::Processes;
use crate::scheduler::Rules;
use crate::sent::Sent;
use crate::session;
use crate::spawner::Spawner;

/// No sizes: builders on one machine share its memory, and each one checks what fits when a build begins.
const ANY_SIZE: (u64, u64) = (0, 0);

/// State shared by all sessions.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) sent: Arc<Sent>,
    /// Accepts connections and tracks the pending ones: those whose client has not sent a request or has not been admitted.
    pub(crate) door: Door,
    pub(crate) activity: Arc<Activity>,
    /// Cancelled when no new builds are to begin.
    pub(crate) drain: CancellationToken,
    /// Cancelled when relayed builds are to stop.
    pub(crate) stop: CancellationToken,
}

/// A router that listens, but accepts no connections before [`Router::run`].
pub struct Router {
    daemon: Daemon,
    shared: Arc<Shared>,
}

impl Router {
    /// Listens on the two ports and starts the pool of builders.
    ///
    /// # Errors
    /// An address cannot be used, or is reachable by other machines without TLS or authentication; the source of builders cannot be used.
    pub async fn bind(config: Config) -> Result<Self, RouterError> {
        let daemon = Daemon::bind(Role::Router, env!("CARGO_PKG_VERSION"), &config.listening, false).await?;
        let (activity, Ending { drain, stop, .. }) = (daemon.activity(), daemon.ending());
        let (spawner, key, memory) = source(&config).await?;
        let rules = Rules { memory, ..config.rules.clone() };
        let pool = Pool::start(rules, spawner, key, activity.clone(), drain.clone());
        let builders = pool.builders();
        activity.set_builders(move || builders.borrow().clone());
        let door = daemon.door(&config.listening);
        let shared = Arc::new(Shared { config, pool, sent: Arc::default(), door, activity, drain, stop });
        Ok(Self { daemon, shared })
    }

    /// Its addresses and activity.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Serves until `shutdown` begins; then accepts no more builds, gives relayed ones the grace period, and stops.
    pub async fn run(self, shutdown: Shutdown) {
        let Self { daemon, shared } = self;
        let serve = |stream, peer, id| {
            let shared = shared.clone();
            async move { session::serve(stream, peer, &shared, id).await }
        };
        let status = daemon.run(shutdown, shared.config.grace, &shared.door, serve).await;
        shared.pool.close().await;
        drop(status);
    }
}

/// The source of builders, their ticket keys, and the least and most memory of a builder in bytes.
async fn source(config: &Config) -> Result<(Arc<dyn Spawner>, Option<Arc<TicketKeys>>, (u64, u64)), RouterError> {
    let failed = |error: &dyn std::fmt::Display| RouterError::Source(error.to_string());
    match &config.source {
        Source::Process(process) => {
            let text = TicketKeys::generate().map_err(|error| failed(&error))?;
            let key = Arc::new(TicketKeys::from_text(&text));
            let processes = Processes::new(process.clone(), &text).map_err(|error| failed(&error))?;
            Ok((Arc::new(processes), Some(key), ANY_SIZE))
        }
        Source::Static(builders, keys) => Ok((Arc::new(Fixed::new(builders.clone())), keys.clone(), ANY_SIZE)),
        #[cfg(feature = "kubernetes")]
        Source::Kubernetes(kubernetes, memory) => {
            let pods = Pods::connect(kubernetes, config.rules.max_builders).await.map_err(|error| failed(&error))?;
            Ok((Arc::new(pods), Some(kubernetes.ticket_keys.clone()), *memory))
        }
    }
}
