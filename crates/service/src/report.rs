//! The JSON of `/status`. `deploy/monitoring.md` describes the fields for users; an incompatible change raises [`REPORT_VERSION`].

use std::net::SocketAddr;

use protocol::Hello;
use serde::{Deserialize, Serialize};

use crate::hex::random;
use crate::{Client, Outcome, Readiness, Role};

/// The version of the format.
pub const REPORT_VERSION: u32 = 1;

/// The state of a daemon and its builds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The [`REPORT_VERSION`] of the daemon that answers.
    pub version: u32,
    /// Builder or router.
    pub role: Role,
    /// The daemon's version.
    pub software: String,
    /// Whether it accepts builds.
    pub readiness: Readiness,
    /// Lantern's status code: 0 no build yet, 1 building, 2 the last build did not succeed, 3 it succeeded.
    pub status: u8,
    /// When that last changed, in ms since 1970.
    pub status_updated_at: u64,
    /// The current time of the daemon, in ms since 1970.
    pub now_ms: u64,
    /// When it was started, in ms since 1970.
    pub started_ms: u64,
    /// Threads that build; 0 for a router.
    pub threads: u32,
    /// Open connections of clients.
    pub connections: u64,
    /// Processor seconds that the daemon has used since its start, on all cores.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Memory.
    pub memory: MemoryReport,
    /// Running builds, oldest first.
    pub builds: Vec<BuildReport>,
    /// Waiting builds, in the order of the queue.
    pub queue: Vec<QueuedReport>,
    /// Ended builds, last one first.
    pub ended: Vec<EndedReport>,
    /// Rates of the last minutes.
    pub throughput: ThroughputReport,
    /// When the daemon's certificate expires, in ms since 1970; `None` without a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires_ms: Option<u64>,
    /// A router's builders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builders: Vec<BuilderReport>,
}

/// Memory of a daemon, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Limit for all builds together; `None` without one.
    pub limit_bytes: Option<u64>,
    /// Reserved by builds.
    pub reserved_bytes: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
}

/// The build's parameters and client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The number of the session, as in the logs.
    pub id: u64,
    /// The id of the build, the same in logs and status of database, router and builder.
    #[serde(default)]
    pub build: String,
    /// The client's name, if it has authenticated with one, and its address as the first daemon sees it.
    #[serde(default)]
    pub client: String,
    /// The client's address.
    pub peer: String,
    /// The client's label, usually the relation's name; `None` unless `--status-labels` is on.
    pub label: Option<String>,
    /// The type of the values, as in SQL.
    #[serde(rename = "type")]
    pub value_type: String,
    /// The metric.
    pub metric: String,
    /// Dimensions.
    pub dims: u32,
    /// `m`.
    pub m: u16,
    /// `ef_construction`.
    pub ef_construction: u16,
    /// The client's estimate of the number of rows.
    pub expected_rows: u64,
}

impl Subject {
    /// The subject of a client's Hello; for a Lantern client, of a Hello with the parameters that it orders.
    #[must_use]
    pub fn new(id: u64, peer: SocketAddr, client: &Client, hello: &Hello) -> Self {
        Self {
            id,
            build: build_id(hello),
            client: client.to_string(),
            peer: peer.to_string(),
            label: Some(hello.label.clone()),
            value_type: hello.value_type.name().to_owned(),
            metric: hello.metric.name().to_owned(),
            dims: hello.dims,
            m: hello.m,
            ef_construction: hello.ef_construction,
            expected_rows: hello.estimated_rows,
        }
    }
}

/// Whether a text may be the id of a build.
#[must_use]
pub fn is_build_id(text: &str) -> bool {
    (8..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The id of a build: the client's, or a new one if the client sends none or an invalid one.
fn build_id(hello: &Hello) -> String {
    // Without random numbers, only the session's number identifies the build.
    if is_build_id(&hello.build_id) { hello.build_id.clone() } else { random::<8>().unwrap_or_default() }
}

/// A running build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildReport {
    /// The build's parameters and client.
    #[serde(flatten)]
    pub subject: Subject,
    /// `rows`, `graph`, `repair`, `order` or `pages`.
    pub phase: String,
    /// Steps of the phase that are done: rows, elements or pages.
    pub done: u64,
    /// Steps of the phase; 0 if not known.
    pub total: u64,
    /// The estimated fraction of the whole build that is done, 0 to 1; never decreases.
    pub fraction: f64,
    /// Rows received.
    pub rows: u64,
    /// Rows per second while they arrive; afterwards steps of the phase per second.
    pub rate: f64,
    /// Estimated seconds left, if there is an estimate.
    pub eta_seconds: Option<f64>,
    /// Seconds since it began.
    pub elapsed_seconds: f64,
    /// When it began, in ms since 1970.
    pub started_ms: u64,
    /// Memory reserved, in bytes; 0 if none was.
    pub memory_bytes: u64,
    /// For a router: the builder that has the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder: Option<String>,
}

/// A build that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedReport {
    /// The build's parameters and client.
    #[serde(flatten)]
    pub subject: Subject,
    /// Its position in the queue, from 1; 0 if it has none yet.
    pub position: u32,
    /// The memory that it waits for, in bytes.
    pub memory_bytes: u64,
    /// Seconds since it was queued.
    pub waiting_seconds: f64,
    /// Estimated seconds until as many running builds have ended as its position says: about when it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<f64>,
}

/// A build that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedReport {
    /// The build's parameters and client.
    #[serde(flatten)]
    pub subject: Subject,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not succeed.
    pub reason: Option<String>,
    /// When it ended, in ms since 1970.
    pub ended_ms: u64,
    /// Seconds in the queue.
    pub waited_seconds: f64,
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// Seconds of each phase.
    pub phases: PhaseSeconds,
    /// Rows received.
    pub rows: u64,
    /// Elements of the graph, if it was finished; rows with equal values share one.
    pub elements: u64,
    /// Pages sent, of 8 KiB.
    pub pages: u64,
    /// Memory that was reserved, in bytes.
    pub memory_bytes: u64,
    /// Self-recall: the fraction of a sample of rows that a search for their own value finds, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_recall: Option<f64>,
    /// Recall@10 of searches with ef_search 40, for a sample of rows and of values between rows, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<f64>,
}

impl EndedReport {
    /// Whether pages of an index were made: a check or advice sends none, and its phases have nothing in common with those of a build.
    pub(crate) fn has_made_pages(&self) -> bool {
        self.pages > 0
    }
}

/// Seconds in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// Receiving rows.
    pub rows: f64,
    /// Finding candidates, or inserting elements.
    pub graph: f64,
    /// Selecting neighbors, measuring and repairing the graph.
    pub repair: f64,
    /// Ordering elements.
    pub order: f64,
    /// Sending pages.
    pub pages: f64,
}

/// Rates of the last minutes, one value per interval, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThroughputReport {
    /// Seconds per value.
    pub interval_seconds: f64,
    /// Rows received per second.
    pub rows_per_second: Vec<f64>,
    /// Elements processed per second in the phase `graph`.
    pub elements_per_second: Vec<f64>,
    /// Pages sent per second.
    pub pages_per_second: Vec<f64>,
}

/// One of a router's builders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderReport {
    /// Its name or address.
    pub name: String,
    /// Its state, such as `ready`, `starting`, `draining` or `lost`.
    pub state: String,
    /// The number of builds that it runs.
    pub builds: u32,
}
