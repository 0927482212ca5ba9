use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{Activity, Door, Listening, PendingConnections, Readiness, Role, Shutdown, StatusServer};

/// How long sessions may take to inform their clients that the daemon stops.
const FAREWELL: Duration = Duration::from_secs(3);

/// Why a daemon did not start.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The host cannot be resolved.
    #[error("cannot resolve host {host}")]
    Resolve {
        /// As configured.
        host: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Rows would cross the network in plaintext.
    #[error(
        "{0} can be reached from other machines and connections would not be encrypted: give a certificate and its key, or \
         listen on 127.0.0.1, or allow plaintext beyond loopback if the network is trusted"
    )]
    Plaintext(SocketAddr),
    /// Clients would not be authenticated.
    #[error(
        "{0} can be reached from other machines and clients would not be asked who they are: give tokens or an authority for \
         client certificates, or listen on 127.0.0.1, or allow anonymous clients if the network is trusted"
    )]
    Anonymous(SocketAddr),
    /// The daemon cannot listen at the address.
    #[error("cannot listen on {host}:{port}")]
    Bind {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The status server cannot listen at the address.
    #[error("cannot listen for status requests on {host}:{port}")]
    BindStatus {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The thread or the runtime of the status server could not be started.
    #[error("cannot start the status server")]
    Status(#[source] io::Error),
    /// A defect: conflicting metrics.
    #[error("cannot register metrics: {0}")]
    Metrics(String),
}

/// Signals to sessions that the daemon stops. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Cancelled when no new builds are accepted.
    pub drain: CancellationToken,
    /// Cancelled when builds must stop.
    pub stop: CancellationToken,
    /// The sessions.
    pub tasks: TaskTracker,
}

/// A daemon that listens, but accepts no connections before [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon {
    listener: TcpListener,
    address: SocketAddr,
    status: StatusServer,
    activity: Arc<Activity>,
    ending: Ending,
    shutdown_delay: Duration,
}

impl Daemon {
    /// Listens for clients and for status requests. Tickets of a router count as authentication: `with_tickets`.
    ///
    /// # Errors
    /// If an address cannot be used, or is reachable by other machines without TLS or authentication.
    pub async fn bind(
        role: Role,
        version: &str,
        listening: &Listening,
        with_tickets: bool,
    ) -> Result<Self, DaemonError> {
        let Listening { host, port, status_host, status_port, status_labels, access, shutdown_delay, .. } = listening;
        access.check_exposure(host, *port, with_tickets).await?;
        let bind = |source| DaemonError::Bind { host: host.clone(), port: *port, source };
        let listener = TcpListener::bind((&**host, *port)).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let activity =
            Activity::new(role, version, *status_labels).map_err(|error| DaemonError::Metrics(error.to_string()))?;
        let activity = Arc::new(activity);
        access.tls.iter().for_each(|tls| activity.set_tls(tls.clone()));
        let status = StatusServer::start(status_host, *status_port, activity.clone())?;
        Ok(Self { listener, address, status, activity, ending: Ending::default(), shutdown_delay: *shutdown_delay })
    }

    /// The address where it listens for clients.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The address where it listens for status requests.
    #[must_use]
    pub fn status_addr(&self) -> SocketAddr {
        self.status.local_addr()
    }

    /// Its activity, for status and metrics.
    #[must_use]
    pub fn activity(&self) -> Arc<Activity> {
        self.activity.clone()
    }

    /// The acceptor of its connections.
    #[must_use]
    pub fn door(&self, listening: &Listening) -> Door {
        let (max_connections, max_handshakes) = (listening.max_connections as usize, listening.max_handshakes);
        let (activity, tasks) = (self.activity.clone(), self.ending.tasks.clone());
        Door { max_connections, max_handshakes, pending: PendingConnections::default(), activity, tasks }
    }

    /// The signals for its sessions.
    #[must_use]
    pub fn ending(&self) -> Ending {
        self.ending.clone()
    }

    /// Reports on the status port that builds are accepted, as [`Self::run`] does. Connections wait in the listen backlog until then.
    pub fn ready(&self) {
        self.activity.set_readiness(Readiness::Ready);
    }

    /// Serves connections as [`Door::accept`] does until `shutdown` drains it: after the delay it accepts no more builds, lets running
    /// ones end within the grace period, and stops the rest. Status is served until the returned server is dropped.
    pub async fn run<F>(
        self,
        shutdown: Shutdown,
        grace: Duration,
        door: &Door,
        serve: impl Fn(TcpStream, SocketAddr, u64) -> F,
    ) -> StatusServer
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.ready();
        let Self { listener, address: _, status, activity, ending: Ending { drain, stop, tasks }, shutdown_delay } =
            self;
        let drained = async {
            shutdown.drain.cancelled().await;
            if !shutdown_delay.is_zero() {
                activity.set_readiness(Readiness::Draining);
                sleep(shutdown_delay).await;
            }
        };
        tokio::select! {
            () = door.accept(&listener, serve) => {}
            () = drained => {}
            () = shutdown.abort.cancelled() => {}
        }
        drop(listener);
        // Only now, unless there was a delay: whoever sees it can rely on connections being refused.
        activity.set_readiness(Readiness::Draining);
        drain.cancel();
        tasks.close();
        if !tasks.is_empty() {
            tracing::info!(connections = tasks.len(), seconds = grace.as_secs(), "waiting for builds to end");
        }
        tokio::select! {
            _ = timeout(grace, tasks.wait()) => {}
            () = shutdown.abort.cancelled() => {}
        }
        stop.cancel();
        if timeout(FAREWELL, tasks.wait()).await.is_err() {
            tracing::warn!(connections = tasks.len(), "ended without waiting for all builds");
        }
        status
    }
}
