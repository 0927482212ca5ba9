//! What does any daemon need? Start and shutdown, TLS, status over HTTP, metrics, logs, and frames on a stream.
//!
//! Nothing here depends on how an index is built, and there is no global state.

mod access;
mod activity;
mod admin;
mod certificate;
mod client;
mod codec;
mod daemon;
mod exchange;
mod hex;
mod listener;
mod listening;
mod lock;
mod metrics;
mod notify;
mod outcome;
mod pending;
mod rate_limiter;
mod reload;
pub mod report;
mod shutdown;
mod size;
mod status;
mod telemetry;
mod throttle;
mod throughput;
mod ticket;
mod tls;
mod tls_check;
mod token_making;
mod tokens;
mod transport;
mod turns;

pub use access::Access;
pub use activity::{Activity, Queued, Running, Stage, harmless, printable};
pub use admin::{AdminError, AdminSocket};
pub use client::{Client, LIMITS_HINT, Limits, held_back};
pub use codec::{CodecError, FrameReader, FrameWriter};
pub use daemon::{Daemon, DaemonError, Ending};
pub use exchange::exchange;
pub use listener::Door;
pub use listening::Listening;
pub use lock::lock;
pub use metrics::{Metrics, OpenConnection};
pub use notify::notify_manager;
pub use outcome::{Closed, Outcome, Readiness, Refusal, Role};
pub use pending::PendingConnections;
pub use protocol::{DEFAULT_PORT, DEFAULT_STATUS_PORT};
pub use reload::{Reload, keep_fresh};
pub use shutdown::Shutdown;
pub use size::{Size, parse_size};
pub use status::StatusServer;
pub use telemetry::TelemetryError;
pub use throttle::Throttle;
pub use ticket::{Clock, Shown, TicketError, TicketGate, TicketKeyError, TicketKeys};
pub use tls::{Tls, TlsError};
pub use tls_check::{TlsFile, check_tls};
pub use token_making::{NewToken, check_token_name};
pub use tokens::{TokenOwner, Tokens, TokensError};
pub use transport::{Transport, buffered, greet, set_options};
pub use turns::{Asks, Share, Turn, fair_order, refuse_memory, refuse_waiting};

/// Sets up the logs of the process.
pub use telemetry::{check_level as check_log_level, init as init_telemetry};
