use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use service::Clock;
use thiserror::Error;
use tokio::sync::watch;

use crate::scheduler::Others;

/// A future of a trait object.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where builders come from.
pub(crate) trait Spawner: Send + Sync {
    /// Starts a builder and waits until it accepts builds. An error leaves nothing behind.
    fn start(&self, order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>>;

    /// Whether builders go on when the router ends.
    fn outlives_router(&self) -> bool {
        false
    }

    /// Builders without a router, to take over; each is returned once.
    fn leftovers(&self) -> Boxed<'_, Result<Vec<Arc<dyn Builder>>, SpawnError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The state of other routers that share `max_builders`. It never changes for a single router.
    fn surroundings(&self) -> watch::Receiver<Surroundings> {
        watch::channel(Surroundings::default()).1
    }
}

/// The state of other routers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Their builders.
    pub(crate) others: Others,
    /// The ticket names of this router's builders for which another router waits.
    pub(crate) wanted: Vec<String>,
    /// Whether another router has released a builder to this one.
    pub(crate) left: bool,
}

/// One builder, from when it is ready until it is gone.
pub(crate) trait Builder: Send + Sync {
    /// Its name in logs, status and tickets.
    fn name(&self) -> &str;
    /// Its name in tickets.
    fn ticket_name(&self) -> &str {
        self.name()
    }
    /// How it is reached.
    fn place(&self) -> &Place;
    /// Memory in bytes that it was given.
    fn memory(&self) -> u64;
    /// Waits until it is gone and says why.
    fn gone(&self) -> Boxed<'_, String>;
    /// Stops it. Returns when nothing is left of it.
    fn stop(&self) -> Boxed<'_, ()>;
    /// Hands it over to another router if it is idle, else stops it.
    fn let_go(&self) -> Boxed<'_, ()> {
        self.stop()
    }
    /// Whether it was started with an earlier configuration and gets no further build.
    fn is_outdated(&self) -> bool {
        false
    }
    /// Publishes, without waiting, whether it has a build.
    fn show_building(&self, _building: bool) {}
}

/// How a builder is reached.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// A name or an address. `None`: the one by which the client has reached the router.
    pub(crate) host: Option<String>,
    /// The port for builds.
    pub(crate) port: u16,
    /// Where the router asks for its status; `None`: as for builds.
    pub(crate) status_host: Option<String>,
    /// The port of its status.
    pub(crate) status_port: u16,
    /// Its clock, by which its tickets expire.
    pub(crate) clock: Clock,
}

impl Place {
    /// Where the router itself reaches it.
    pub(crate) fn host(&self) -> &str {
        self.host.as_deref().unwrap_or("127.0.0.1")
    }

    /// Where its status is.
    pub(crate) fn status_host(&self) -> &str {
        self.status_host.as_deref().unwrap_or(self.host())
    }
}

/// What to start.
#[derive(Debug)]
pub(crate) struct Order {
    /// Memory in bytes that the build will take.
    pub(crate) memory: u64,
    /// How long it may take.
    pub(crate) limit: Duration,
    /// Reports progress to waiting clients.
    pub(crate) tell: watch::Sender<String>,
}

/// What another start may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// The cause may go away by itself.
    Passing,
    /// Another start would fail too.
    Lasting,
    /// Not an error: other routers have all of `max_builders`.
    Full,
}

/// Why there is no builder.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub(crate) struct SpawnError {
    /// The message of the system or Kubernetes.
    pub(crate) text: String,
    /// What may help; may be empty.
    pub(crate) hint: String,
    /// What another start may bring.
    pub(crate) outlook: Outlook,
}

impl SpawnError {
    /// An error whose cause may go away by itself.
    pub(crate) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: String::new(), outlook: Outlook::Passing }
    }

    /// `max_builders` is reached by builders of other routers.
    #[cfg_attr(not(feature = "kubernetes"), expect(dead_code, reason = "only pods are places that routers share"))]
    pub(crate) fn full(text: impl Into<String>) -> Self {
        Self { outlook: Outlook::Full, ..Self::passing(text) }
    }

    /// An error that lasts until somebody fixes its cause.
    pub(crate) fn lasting(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { text: text.into(), hint: hint.into(), outlook: Outlook::Lasting }
    }
}
