use protocol::SqlState;
use serde::{Deserialize, Serialize};

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The client has received all pages.
    Succeeded,
    /// An error on either side.
    Failed,
    /// The client cancelled, disconnected or was silent for too long, or the daemon shut down.
    Cancelled,
    /// The build never began, or no advice is possible, for instance on a small table.
    Refused,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Cancelled, Self::Refused];

    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }
}

/// Why a build has never begun: the label `reason` of `lantern_index_builds_refused_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not supported, or exceeds a limit.
    Options,
    /// It needs more memory than allowed.
    Memory,
    /// Too many builds are waiting, or it waited too long.
    Queue,
    /// The client is not authenticated.
    Access,
    /// The daemon shuts down.
    Draining,
    /// No builder is available.
    Builders,
    /// Anything else, such as a failure to start a thread.
    Other,
}

impl Refusal {
    pub(crate) const ALL: [Self; 7] =
        [Self::Options, Self::Memory, Self::Queue, Self::Access, Self::Draining, Self::Builders, Self::Other];

    /// The reason for an error code.
    #[must_use]
    pub fn of(sqlstate: SqlState) -> Self {
        match sqlstate {
            SqlState::OUT_OF_MEMORY => Self::Memory,
            SqlState::TOO_MANY_CONNECTIONS => Self::Queue,
            SqlState::CANNOT_CONNECT_NOW => Self::Draining,
            SqlState::INVALID_AUTHORIZATION => Self::Access,
            SqlState::INTERNAL_ERROR => Self::Other,
            _ => Self::Options,
        }
    }

    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Options => "options",
            Self::Memory => "memory",
            Self::Queue => "queue",
            Self::Access => "access",
            Self::Draining => "draining",
            Self::Builders => "builders",
            Self::Other => "other",
        }
    }
}

/// Why a connection was closed before its request: the label `reason` of `lantern_index_connections_closed_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client has presented no certificate, or none that is accepted.
    Certificate,
    /// The TLS handshake failed otherwise.
    Tls,
    /// The client uses no known protocol, or violates it.
    Protocol,
    /// The client sent no request in time.
    Timeout,
    /// There are too many connections.
    Limit,
    /// The connection broke.
    Broken,
}

impl Closed {
    pub(crate) const ALL: [Self; 6] =
        [Self::Certificate, Self::Tls, Self::Protocol, Self::Timeout, Self::Limit, Self::Broken];

    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Tls => "tls",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Broken => "broken",
        }
    }
}

/// Whether the daemon accepts builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Readiness {
    /// Not yet: the daemon starts.
    Starting = 0,
    /// It accepts builds.
    Ready = 1,
    /// No longer.
    Draining = 2,
}

impl Readiness {
    /// The name in status and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// The kind of daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It builds indexes.
    Builder,
    /// It assigns builds to builders.
    Router,
}

impl Role {
    /// The name in status and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Builder => "builder",
            Self::Router => "router",
        }
    }
}
