use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lantern_index_server::{Config, Server};
use service::{Activity, Listening, Shutdown};

use super::{Client, connect, get, metric};

/// A builder on free ports, drained when dropped.
pub struct Builder {
    pub address: SocketAddr,
    pub status: SocketAddr,
    pub shutdown: Shutdown,
    pub activity: Arc<Activity>,
    thread: Option<JoinHandle<()>>,
}

impl Builder {
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let listening = Listening { port: 0, status_port: 0, ..Listening::default() };
        let mut config = Config { listening, threads: 2, ..Config::default() };
        change(&mut config);
        let shutdown = Shutdown::default();
        let handle = shutdown.clone();
        let (started, addresses) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(config).await.unwrap();
                let daemon = server.daemon();
                started.send((daemon.local_addr(), daemon.status_addr(), daemon.activity())).unwrap();
                server.run(handle).await;
            });
        });
        let (address, status, activity) = addresses.recv().unwrap();
        Self { address, status, shutdown, activity, thread: Some(thread) }
    }

    /// A client that has been greeted and has chosen protocol version 2.
    pub fn connect(&self) -> Client<TcpStream> {
        Client::opened(connect(self.address))
    }

    /// A client that has been greeted.
    pub fn connect_raw(&self) -> Client<TcpStream> {
        Client::greeted(connect(self.address))
    }

    /// `GET path` on the status port: head and body.
    pub fn get(&self, path: &str) -> String {
        get(self.status, path)
    }

    /// The number `status` in the answer to `GET /`, which Lantern's status clients read.
    pub fn status_number(&self) -> u8 {
        let answer = self.get("/");
        let (_, rest) = answer.split_once("{\"status\":").unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }

    /// The value of a metric, by its name in the exposition.
    pub fn metric(&self, name: &str) -> u64 {
        metric(self.status, name)
    }

    /// Builds that ended, by outcome.
    pub fn builds(&self, outcome: &str) -> u64 {
        self.metric(&format!("lantern_index_builds_total{{outcome=\"{outcome}\"}}"))
    }

    /// Waits until no build is running; returns how long that took.
    pub fn settle(&self) -> Duration {
        let since = Instant::now();
        eventually("the build ends", || self.metric("lantern_index_build_active") == 0);
        since.elapsed()
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.shutdown.abort.cancel();
        self.shutdown.drain.cancel();
        let result = self.thread.take().unwrap().join();
        assert!(result.is_ok() || thread::panicking(), "the builder panicked");
    }
}

/// Waits for up to 30 seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
