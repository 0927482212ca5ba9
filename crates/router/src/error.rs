use service::DaemonError;
use thiserror::Error;

/// Why a router did not start.
#[derive(Debug, Error)]
pub enum RouterError {
    /// It could not listen, or not where it was told to.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// There is nowhere to get builders from.
    #[error("cannot get builders: {0}")]
    Source(String),
}
