use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use service::Clock;
use thiserror::Error;
use tokio::sync::watch;

use crate::scheduler::Others;

/// A boxed future, as methods of trait objects return.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A source of builders.
pub(crate) trait Spawner: Send + Sync {
    /// Starts a builder and waits until it accepts builds. If it fails, nothing remains of the builder.
    fn start(&self, order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>>;

    /// Whether builders continue to run when the router ends.
    fn outlives_router(&self) -> bool {
        false
    }

    /// Builders whose router is gone, to take over; each is returned once.
    fn leftovers(&self) -> Boxed<'_, Result<Vec<Arc<dyn Builder>>, SpawnError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The state of other routers that share `max_builders`. It never changes if there is only one router.
    fn surroundings(&self) -> watch::Receiver<Surroundings> {
        watch::channel(Surroundings::default()).1
    }
}

/// The state of other routers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Numbers of their builders.
    pub(crate) others: Others,
    /// The ticket names of this router's builders for which another router waits.
    pub(crate) wanted: Vec<String>,
    /// Whether there are builders to take over: pods that another router has released to this one, those of this router's earlier run, and pods
    /// without a router.
    pub(crate) left: bool,
}

/// A builder, from its readiness to its end.
pub(crate) trait Builder: Send + Sync {
    /// What does not change about it.
    fn facts(&self) -> &Facts;
    /// Waits until it is gone, and returns the reason.
    fn gone(&self) -> Boxed<'_, String>;
    /// Stops it. Returns when it no longer exists.
    fn stop(&self) -> Boxed<'_, ()>;
    /// Hands it over to another router if it is idle, else stops it.
    fn let_go(&self) -> Boxed<'_, ()> {
        self.stop()
    }
    /// Publishes whether it has a build. Does not wait.
    fn show_building(&self, _building: bool) {}
}

/// What is known of a builder from its start.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Its name in logs and status.
    pub(crate) name: String,
    /// Its name in tickets.
    pub(crate) ticket_name: String,
    /// Its addresses.
    pub(crate) place: Place,
    /// Its memory in bytes.
    pub(crate) memory: u64,
    /// Whether it was started with an earlier configuration, so that it gets no further build.
    pub(crate) outdated: bool,
}

impl Facts {
    /// A builder with one name, of the present configuration.
    pub(crate) fn new(name: String, place: Place, memory: u64) -> Self {
        Self { ticket_name: name.clone(), name, place, memory, outdated: false }
    }
}

/// The addresses of a builder.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// A name or an address; `None` for the one at which the client reached the router.
    pub(crate) host: Option<String>,
    /// The port for builds.
    pub(crate) port: u16,
    /// The host for status requests; `None` if it is that for builds.
    pub(crate) status_host: Option<String>,
    /// The port for status requests.
    pub(crate) status_port: u16,
    /// The builder's clock, which decides when its tickets expire.
    pub(crate) clock: Clock,
}

impl Place {
    /// The host at which the router itself reaches it.
    pub(crate) fn host(&self) -> &str {
        self.host.as_deref().unwrap_or("127.0.0.1")
    }

    /// The host for status requests.
    pub(crate) fn status_host(&self) -> &str {
        self.status_host.as_deref().unwrap_or(self.host())
    }
}

/// The builder to start.
#[derive(Debug)]
pub(crate) struct Order {
    /// Memory of the builder in bytes; 0 if builders have no sizes.
    pub(crate) memory: u64,
    /// The time limit for the start.
    pub(crate) limit: Duration,
    /// Sends reports about the start to waiting clients.
    pub(crate) tell: watch::Sender<String>,
}

/// What to expect of another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// It may succeed: the cause may be temporary.
    Passing,
    /// It would fail as well.
    Lasting,
    /// It succeeds when builders of other routers, which have reached `max_builders`, end. Not an error.
    Full,
    /// It may succeed when builders of other routers, which share a quota that leaves no room, end.
    Shared,
    /// It may succeed when this router's own builders, beside which a quota leaves no room, end.
    Quota,
}

/// Why a builder was not started.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub(crate) struct SpawnError {
    /// The message of the operating system or of Kubernetes.
    pub(crate) text: String,
    /// What may help; may be empty.
    pub(crate) hint: String,
    /// What to expect of another start.
    pub(crate) outlook: Outlook,
}

impl SpawnError {
    /// An error with a cause that may be temporary.
    pub(crate) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: String::new(), outlook: Outlook::Passing }
    }

    /// Builders of other routers have reached `max_builders`.
    #[cfg_attr(not(feature = "kubernetes"), expect(dead_code, reason = "only pods are places that routers share"))]
    pub(crate) fn full(text: impl Into<String>) -> Self {
        Self { outlook: Outlook::Full, ..Self::passing(text) }
    }

    /// An error that remains until an operator removes its cause.
    pub(crate) fn lasting(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { text: text.into(), hint: hint.into(), outlook: Outlook::Lasting }
    }
}
