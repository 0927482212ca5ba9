use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A handle to stop a daemon. Clones are the same handle.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Accept no more builds; running ones may end within the grace period.
    pub drain: CancellationToken,
    /// Stop running builds without waiting for the grace period.
    pub abort: CancellationToken,
}

impl Shutdown {
    /// Handles SIGTERM and SIGINT from now on: the first one drains, the second one aborts.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the signals cannot be handled.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::default();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let handle = shutdown.clone();
        tokio::spawn(async move {
            for token in [&handle.drain, &handle.abort] {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                token.cancel();
                tracing::info!(signal = name, "shutting down");
            }
        });
        Ok(shutdown)
    }
}
