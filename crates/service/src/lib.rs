//! What the daemons share: how they begin and end, TLS, status over HTTP, metrics, logs, shutdown and frames on a stream.
//!
//! Nothing here knows how an index is built; nothing is global, every part is a value that its user passes on.

mod activity;
mod codec;
mod daemon;
mod hangup;
mod metrics;
mod notify;
mod outcome;
pub mod report;
mod shutdown;
mod status;
mod telemetry;
mod throttle;
mod throughput;
mod ticket;
mod tls;
mod tokens;
mod transport;

pub use activity::{Activity, Queued, Running, Stage, printable};
pub use codec::{CodecError, FrameReader, FrameWriter};
pub use daemon::{Daemon, DaemonError, Ending, exposed};
pub use hangup::on_hangup;
pub use metrics::{Metrics, OpenConnection};
pub use notify::notify_manager;
pub use outcome::{Closed, Outcome, Readiness, Refusal, Role};
pub use shutdown::Shutdown;
pub use status::{StatusError, StatusServer};
pub use telemetry::{LogFormat, TelemetryError};
pub use throttle::Throttle;
pub use ticket::{TicketError, TicketGate, TicketKey, TicketKeyError};
pub use tls::{Tls, TlsError};
pub use tokens::{Tokens, TokensError};
pub use transport::{Buffered, Transport, buffered, set_options};

/// Sets up the logs of the process.
pub use telemetry::{check_level as check_log_level, init as init_telemetry};
