use service::DaemonError;
use thiserror::Error;

/// Why a router did not start.
#[derive(Debug, Error)]
pub enum RouterError {
    /// It could not listen at the configured address.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The source of builders cannot be used, with the reason.
    #[error("cannot get builders: {0}")]
    Source(String),
}
