use service::DaemonError;
use thiserror::Error;

/// Why a builder did not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// It could not listen at the configured address.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}
