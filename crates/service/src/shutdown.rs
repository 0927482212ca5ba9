use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Signals within this time count as one: `timeout` signals its child and then its process group, a terminal all processes.
const SAME_ORDER: Duration = Duration::from_millis(100);

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
            let mut next = async || {
                tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                }
            };
            for token in [&handle.drain, &handle.abort] {
                let name = next().await;
                token.cancel();
                tracing::info!(signal = name, "shutting down");
                let until = Instant::now() + SAME_ORDER;
                while timeout_at(until, next()).await.is_ok() {}
            }
        });
        Ok(shutdown)
    }
}
