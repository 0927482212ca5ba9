use service::DaemonError;
use thiserror::Error;

/// Why a router did not start.
#[derive(Debug, Error)]
pub enum RouterError {
    /// It could not listen at the configured address.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// No source of builders is available.
    #[error("cannot get builders: {0}")]
    Source(String),
}
