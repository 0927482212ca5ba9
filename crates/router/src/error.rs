use std::io;
use std::net::SocketAddr;

use service::StatusError;
use thiserror::Error;

/// Why a router did not start.
#[derive(Debug, Error)]
pub enum RouterError {
    /// The host is not known.
    #[error("cannot resolve host {host}")]
    Resolve {
        /// As configured.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// Rows would cross the network readable.
    #[error(
        "{0} can be reached from other machines and connections would not be encrypted: give a certificate and its key, or \
         listen on 127.0.0.1, or allow plaintext beyond loopback if the network is trusted"
    )]
    Plaintext(SocketAddr),
    /// The address is not ours to listen on.
    #[error("cannot listen on {host}:{port}")]
    Bind {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The status server did not start.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// There is nowhere to get builders from.
    #[error("cannot get builders: {0}")]
    Source(String),
    /// A defect: the metrics do not fit together.
    #[error("cannot register metrics: {0}")]
    Metrics(String),
}
