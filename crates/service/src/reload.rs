//! Reloads files while the daemon runs: at SIGHUP, and when they change, as Kubernetes' Secrets do.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::notify_manager;

/// Interval of checks for changes.
const LOOK: Duration = Duration::from_secs(2);

/// State that is read from files.
pub trait Reload: Send + Sync {
    /// What it is, for log messages.
    fn what(&self) -> &'static str;
    /// The files.
    fn files(&self) -> Vec<PathBuf>;
    /// Reloads the files. On an error the old state stays.
    ///
    /// # Errors
    /// The problem with a file.
    fn reload(&self) -> Result<(), Box<dyn std::error::Error>>;
}

/// From now on, reloads the files of `parts` at each SIGHUP, which then does not end the process, and when they change.
///
/// Must be called within a tokio runtime.
///
/// # Errors
/// If signals cannot be handled.
pub fn keep_fresh(parts: Vec<Arc<dyn Reload>>) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut parts: Vec<Part> = parts.into_iter().map(Part::new).collect();
    tokio::spawn(async move {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                heard = hangup.recv() => {
                    if heard.is_none() {
                        return;
                    }
                    notify_manager(&reloading());
                    for part in &mut parts {
                        part.is_failing = false;
                        part.read();
                    }
                    notify_manager("READY=1");
                }
                _ = looks.tick() => parts.iter_mut().filter(|part| part.is_due()).for_each(Part::read),
            }
        }
    });
    Ok(())
}

/// Identifies a version of a file.
type Version = Option<(u64, u64, i64, i64, u64)>;

struct Part {
    of: Arc<dyn Reload>,
    /// Versions of the files at the last reload.
    versions: Vec<Version>,
    /// Whether that reload failed. Then each check repeats it: a file may become readable without a change of its version.
    is_failing: bool,
}

impl Part {
    fn new(of: Arc<dyn Reload>) -> Self {
        let versions = versions(&*of);
        Self { of, versions, is_failing: false }
    }

    fn is_due(&self) -> bool {
        self.is_failing || versions(&*self.of) != self.versions
    }

    fn read(&mut self) {
        // Before the files are read, so that a change during the read causes another reload.
        let versions = versions(&*self.of);
        let is_repeated = self.is_failing && versions == self.versions;
        self.versions = versions;
        let (what, result) = (self.of.what(), self.of.reload());
        self.is_failing = result.is_err();
        match result {
            Ok(()) => tracing::info!("{what} read again"),
            Err(_) if is_repeated => {}
            Err(error) => tracing::error!("{what} not read again, the old ones stay: {}", chain(&*error)),
        }
    }
}

fn versions(part: &dyn Reload) -> Vec<Version> {
    let version = |file: &PathBuf| {
        let data = fs::metadata(file).ok()?;
        Some((data.dev(), data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
    };
    part.files().iter().map(version).collect()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// systemd's message that a reload begins, with the time that identifies it.
fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::{Part, Reload, keep_fresh};
    use crate::Tokens;

    const ONE: &str = "0123456789abcdef";
    const TWO: &str = "fedcba9876543210";

    /// Fails twice.
    #[derive(Default)]
    struct Stubborn(AtomicUsize);

    impl Reload for Stubborn {
        fn what(&self) -> &'static str {
            "something"
        }

        fn files(&self) -> Vec<PathBuf> {
            Vec::new()
        }

        fn reload(&self) -> Result<(), Box<dyn std::error::Error>> {
            if self.0.fetch_add(1, Ordering::Relaxed) < 2 { Err("not yet".into()) } else { Ok(()) }
        }
    }

    #[test]
    fn a_reload_that_fails_is_repeated() {
        let stubborn = Arc::new(Stubborn::default());
        let mut part = Part::new(stubborn.clone());
        assert!(!part.is_due(), "nothing has changed");
        part.read();
        for reads in [1, 2] {
            assert!(part.is_due());
            assert_eq!(stubborn.0.load(Ordering::Relaxed), reads);
            part.read();
        }
        assert!(!part.is_due(), "the third read succeeded");
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, ONE).unwrap();
        let tokens = Arc::new(Tokens::open(&file).unwrap());
        keep_fresh(vec![tokens.clone()]).unwrap();
        let becomes = async |token: &str| {
            let known = async {
                while tokens.owner(token).is_none() {
                    sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(Duration::from_secs(60), known).await.unwrap();
        };
        // Like Kubernetes: rename another file into place.
        let next = dir.path().join("next");
        fs::write(&next, TWO).unwrap();
        fs::rename(&next, &file).unwrap();
        becomes(TWO).await;
        assert!(tokens.owner(ONE).is_none());
    }
}
