use service::DaemonError;
use thiserror::Error;

/// Why a builder did not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// It could not listen, or not where it was told to.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}
