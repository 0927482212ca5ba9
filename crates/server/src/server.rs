use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use hnsw::Storage;
use service::{Activity, Client, Daemon, DaemonError, Door, Ending, Limits, Role, Shutdown};
use tokio_util::sync::CancellationToken;

use crate::admission::{self, Admission};
use crate::{Config, session};

/// State shared by all sessions.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Threads of each build.
    pub(crate) threads: usize,
    pub(crate) admission: Arc<Admission>,
    /// Accepts connections and tracks the pending ones: those whose client has not sent a request or has not been admitted.
    pub(crate) door: Door,
    pub(crate) activity: Arc<Activity>,
    /// Cancelled when no new builds are to begin.
    pub(crate) drain: CancellationToken,
    /// Cancelled when running builds are to stop.
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// Where values of a build are stored: in memory and, if a directory is configured, in the spool.
    pub(crate) fn storage(&self) -> Storage {
        self.config.spool_dir.clone().map_or_else(Storage::default, Storage::with_spool)
    }

    /// The most rows of a build of this client; 0 is no limit.
    pub(crate) fn max_rows(&self, client: &Client) -> u64 {
        client.limits.lower(&Limits { rows: self.config.max_rows, ..Limits::default() }).rows
    }

    pub(crate) fn threads(&self) -> u32 {
        u32::try_from(self.threads).unwrap_or(u32::MAX)
    }
}

/// A builder that listens, but accepts no connections before [`Server::run`].
pub struct Server {
    daemon: Daemon,
    shared: Arc<Shared>,
}

impl Server {
    /// Listens on the two ports and starts the threads.
    ///
    /// # Errors
    /// An address cannot be used, or is reachable by other machines without TLS or authentication; threads cannot be started.
    pub async fn bind(config: Config) -> Result<Self, DaemonError> {
        let (listening, version) = (&config.listening, env!("CARGO_PKG_VERSION"));
        let daemon = Daemon::bind(Role::Builder, version, listening, config.tickets.is_some()).await?;
        let (activity, Ending { drain, stop, .. }) = (daemon.activity(), daemon.ending());
        let threads = match config.threads {
            0 => available_parallelism().map_or(1, NonZero::get),
            threads => threads,
        };
        let limit = if config.memory_limit == 0 { admission::default_limit() } else { config.memory_limit };
        let admission = Admission::new(limit, config.max_builds);
        activity.set_threads(threads);
        let admitted = admission.clone();
        activity.set_memory(limit, move || admitted.standing().reserved);
        let door = daemon.door(&config.listening);
        let shared = Arc::new(Shared { config, threads, admission, door, activity, drain, stop });
        Ok(Self { daemon, shared })
    }

    /// Its addresses and activity.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Whether clients must authenticate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.shared.config.asks_clients()
    }

    /// The threads that do the CPU work of each build.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Bytes of memory for all builds together.
    #[must_use]
    pub fn memory_limit(&self) -> u64 {
        self.shared.admission.standing().limit
    }

    /// Serves until `shutdown` begins; then accepts no more builds, gives running ones the drain timeout, and stops the rest.
    pub async fn run(self, shutdown: Shutdown) {
        let Self { daemon, shared } = self;
        let serve = |stream, peer, id| {
            let shared = shared.clone();
            async move { session::serve(stream, &shared, id, peer).await }
        };
        drop(daemon.run(shutdown, shared.config.drain_timeout, &shared.door, serve).await);
    }
}

#[cfg(test)]
mod tests {
    use protocol::Phase;
    use service::report::Subject;
    use service::{Client, Listening, Stage};

    use super::Server;
    use crate::Config;

    #[tokio::test]
    async fn a_session_that_still_writes_has_nothing_reserved() {
        let local = || "127.0.0.1".to_owned();
        let listening =
            Listening { host: local(), status_host: local(), port: 0, status_port: 0, ..Listening::default() };
        let config = Config { listening, memory_limit: 100, ..Config::default() };
        let server = Server::bind(config).await.unwrap();
        let (admission, activity) = (&server.shared.admission, &server.shared.activity);
        let stage = || Stage { phase: Phase::Pages, done: 0, total: 0, spent: Default::default() };
        let client = Client::unnamed("127.0.0.1:1".parse().unwrap());
        let begin = || {
            let reservation = admission.enter(60, &client).unwrap().take().unwrap();
            let running = activity.queue(Subject::default()).begin(reservation.bytes(), stage);
            (reservation, running)
        };
        let shown = || {
            let text = activity.exposition().unwrap();
            let gauge = text.lines().find_map(|line| line.strip_prefix("lantern_index_memory_reserved_bytes "));
            (activity.report().memory.reserved_bytes, gauge.unwrap().parse::<u64>().unwrap())
        };
        let (first, writing) = begin();
        assert_eq!(shown(), (60, 60));
        // The build's thread has ended and its memory is free for another build, though its last pages are still in flight.
        first.release();
        let (second, running) = begin();
        assert_eq!(shown(), (60, 60), "of a limit of 100");
        second.resize(20).unwrap();
        assert_eq!(shown(), (20, 20));
        drop((writing, running, second));
        assert_eq!(shown(), (0, 0));
    }
}
