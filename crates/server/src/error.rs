use std::io;
use std::net::SocketAddr;

use service::StatusError;
use thiserror::Error;

/// Why a builder did not start.
#[derive(Debug, Error)]
pub enum ServerError {
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
    /// Anybody could use the builder.
    #[error(
        "{0} can be reached from other machines and clients would not be asked who they are: give tokens or an authority for \
         client certificates, or listen on 127.0.0.1, or allow anonymous clients if the network is trusted"
    )]
    Anonymous(SocketAddr),
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
    /// A defect: the metrics do not fit together.
    #[error("cannot register metrics: {0}")]
    Metrics(String),
}
