//! The faults, and which consequences each may have.

use std::time::Duration;

use harness::{Direction, Stranger};

/// How builds get to a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Direct,
    Relay,
    Redirect,
    Static,
    /// The router's builders are pods, and it relays.
    Pods,
    /// The router's builders are pods, to which it redirects clients.
    PodsRedirect,
}

impl Mode {
    /// Modes without Kubernetes, and with it.
    pub const OF_PROCESSES: [Self; 4] = [Self::Direct, Self::Relay, Self::Redirect, Self::Static];
    pub const OF_PODS: [Self; 2] = [Self::Pods, Self::PodsRedirect];

    pub fn has_router(self) -> bool {
        self != Self::Direct
    }

    /// Whether the router starts and stops the builders.
    pub fn starts_builders(self) -> bool {
        !matches!(self, Self::Direct | Self::Static)
    }

    /// Whether the builders are pods.
    pub fn has_pods(self) -> bool {
        Self::OF_PODS.contains(&self)
    }

    /// Whether clients are redirected to a builder.
    pub fn is_redirect(self) -> bool {
        matches!(self, Self::Redirect | Self::PodsRedirect)
    }

    /// The same mode, with relays instead of redirects.
    pub fn relayed(self) -> Self {
        match self {
            Self::Redirect => Self::Relay,
            Self::PodsRedirect => Self::Pods,
            other => other,
        }
    }
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    Backend,
    Postmaster,
    Router,
    Builder,
    /// The second router for the same pods.
    Replica,
}

/// A fault, or an action that must not affect any build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    Calm,
    Kill(Party),
    Terminate(Party),
    Hangup(Party),
    Stop(Party, Duration),
    /// The process cannot allocate any more memory. It is a new process, with no freed memory to reuse.
    Starve(Party),
    Cancel,
    RenewCertificate,
    RenewToken,
    Cut,
    /// The network passes 100 KB/s.
    Slow(Direction),
    /// The network delays each piece of data.
    Delay(Duration),
    /// The builder uses its spool, and the disk is full.
    FullDisk,
    /// The builder has less memory than the build needs.
    LittleMemory,
    /// This number of hostile connections at a time.
    Strangers(Stranger, usize),
    /// The API server of Kubernetes is down for this time.
    ApiServer(Duration),
    /// A builder's pod is deleted, as when a node is drained.
    DeletePod,
    /// There is a second router, which ends when its builds have ended.
    Replica,
}

impl Fault {
    /// A name that is the same for faults that differ only in numbers.
    pub fn name(self) -> String {
        match self {
            Self::Stop(party, _) => format!("Stop({party:?})"),
            Self::Delay(_) => "Delay".to_owned(),
            Self::Strangers(kind, _) => format!("Strangers({kind:?})"),
            Self::ApiServer(_) => "ApiServer".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Whether every statement must succeed.
    pub fn is_harmless(self) -> bool {
        match self {
            Self::Calm | Self::Hangup(_) | Self::Stop(..) | Self::RenewCertificate | Self::RenewToken => true,
            Self::Slow(_) | Self::Delay(_) | Self::Strangers(..) | Self::Replica => true,
            Self::Kill(_) | Self::Terminate(_) | Self::Starve(_) | Self::Cancel | Self::Cut => false,
            // A build that has a builder continues; others wait, or fail with the reason: see `checks`.
            Self::FullDisk | Self::LittleMemory | Self::ApiServer(_) | Self::DeletePod => false,
        }
    }

    /// Whether there is a second router, which has builds of its own.
    pub fn has_replica(self) -> bool {
        matches!(self, Self::Replica | Self::Kill(Party::Replica) | Self::Terminate(Party::Replica))
    }

    /// Whether a single builder is lost, with its build. A starved builder survives: it refuses a build at once, and may get the next one.
    pub fn is_of_one_builder(self) -> bool {
        matches!(self, Self::Kill(Party::Builder) | Self::Terminate(Party::Builder) | Self::DeletePod)
    }

    /// Whether it needs daemons with special limits.
    pub fn has_own_rig(self) -> bool {
        matches!(self, Self::FullDisk | Self::LittleMemory | Self::Starve(_))
    }

    /// The time limit for a statement.
    pub fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::Slow(_) | Self::Delay(_) => 60,
            // A builder waits for a client that does not read, then possibly for the next such client ahead of us in the queue.
            Self::Strangers(Stranger::Deaf, _) => 28,
            fault if fault.is_harmless() => 20,
            // A client's silence is tolerated for at most 30 seconds.
            _ => 45,
        })
    }

    /// Whether a PostgreSQL server replays its WAL afterwards.
    pub fn is_crash(self) -> bool {
        matches!(self, Self::Kill(Party::Backend | Party::Postmaster))
    }

    /// Whether a PostgreSQL server ends its sessions.
    pub fn ends_sessions(self) -> bool {
        self.is_crash() || self == Self::Terminate(Party::Postmaster)
    }

    /// Whether a daemon of the rig may end by it.
    pub fn ends_daemon(self) -> bool {
        matches!(
            self,
            Self::Kill(Party::Router | Party::Builder)
                | Self::Terminate(Party::Router | Party::Builder)
                | Self::Starve(_)
        )
    }
}
