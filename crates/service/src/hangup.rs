use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Calls `reload` at each SIGHUP from now on, in place of ending the process.
///
/// Must be called within a tokio runtime.
///
/// # Errors
/// When the system does not let the process handle signals.
pub fn on_hangup(mut reload: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload();
        }
    });
    Ok(())
}
