use std::net::SocketAddr;

use service::DaemonError;
use thiserror::Error;

/// Why a builder did not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Anybody could use the builder.
    #[error(
        "{0} can be reached from other machines and clients would not be asked who they are: give tokens or an authority for \
         client certificates, or listen on 127.0.0.1, or allow anonymous clients if the network is trusted"
    )]
    Anonymous(SocketAddr),
    /// It could not listen, or not where it was told to.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}
