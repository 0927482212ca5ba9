use std::io;

use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};

use crate::notify_manager;

/// Calls `reload` at each SIGHUP from now on, in place of ending the process, and tells the service manager.
///
/// Must be called within a tokio runtime.
///
/// # Errors
/// When the system does not let the process handle signals.
pub fn on_hangup(mut reload: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            notify_manager(&reloading());
            reload();
            notify_manager("READY=1");
        }
    });
    Ok(())
}

/// That a reload begins, in systemd's words: which one it is, it tells by the time.
fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000)
}
