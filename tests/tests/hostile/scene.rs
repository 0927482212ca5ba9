//! A table, and sessions that build with simulated builders.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Cluster, Notice, Session, SqlError};

use crate::fake::{FakeBuilder, Peer};

/// A cluster for all tests; each test has its own database.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

pub const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

/// A limit against hanging, shorter than any other timeout that would end these statements. The error tells what ended them.
pub const SOON: Duration = Duration::from_secs(30);
/// By how much a backend may grow, whatever a builder sends.
const MEMORY: u64 = 24 << 20;

pub struct Scene {
    database: String,
    pub session: Session,
    started: String,
    files: Vec<String>,
}

/// The error of a build, and the time from the event that had to end the build until it failed.
pub struct Failed {
    pub error: Notice,
    pub took: Duration,
}

impl Scene {
    /// A small table, whose index has four pages: the meta page, two with elements, and one with neighbors only.
    pub fn new(database: &str) -> Self {
        Self::with_rows(database, 24, 128)
    }

    /// A table of 13 MB, more than the buffers of a connection hold.
    pub fn large(database: &str) -> Self {
        Self::with_rows(database, 8000, 400)
    }

    fn with_rows(database: &str, rows: u32, dims: u32) -> Self {
        let mut session = CLUSTER.database(database).unwrap();
        session
            .execute(&format!(
                "CREATE TABLE items (id int PRIMARY KEY, v vector({dims}));
                 INSERT INTO items SELECT i, (ARRAY[i::real] || array_fill(i * i % 101, ARRAY[{dims} - 1])::real[])::vector
                     FROM generate_series(1, {rows}) i;
                 SET hnsw.external_index_host = '127.0.0.1';
                 SET hnsw.external_index_secure = off"
            ))
            .unwrap();
        Self::of(database, session)
    }

    /// Uses an existing table `items`.
    pub fn of(database: &str, mut session: Session) -> Self {
        let started = session.value("SELECT pg_postmaster_start_time()").unwrap();
        let files = CLUSTER.relation_files(database).unwrap();
        Self { database: database.to_owned(), session, started, files }
    }

    pub fn point_at(&mut self, port: u16) {
        self.session.execute(&format!("SET hnsw.external_index_port = {port}")).unwrap();
    }

    /// Runs a statement with a simulated builder that runs `script`.
    pub fn run(
        &mut self,
        sql: &str,
        script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SqlError> {
        let builder = FakeBuilder::play(script);
        self.point_at(builder.port());
        let result = self.session.execute(sql);
        builder.expect_left();
        result
    }

    /// Checks that the build fails and leaves nothing.
    pub fn fails(&mut self, script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static) -> Notice {
        let start = Instant::now();
        let error = self.run(CREATE, script).expect_err("the build should have failed");
        let took = start.elapsed();
        assert!(took < SOON, "failed after {:.1} s: {error}", took.as_secs_f64());
        println!("{error}\n");
        self.expect_clean();
        error.server().clone()
    }

    /// Checks that the build fails with this SQLSTATE, and with `words` in its message or detail.
    pub fn fails_with(
        &mut self,
        case: &str,
        (sqlstate, words): (&str, &str),
        script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static,
    ) {
        println!("{case}:");
        let error = self.fails(script);
        assert_eq!(error.sqlstate, sqlstate, "{case}: {error}");
        assert!(error.message.contains(words) || error.detail.contains(words), "{case}: {words:?} expected: {error}");
    }

    /// Runs a build until `end` ends it, and checks that the backend does not grow meanwhile. `end` gets the backend's process id when the
    /// script calls [`Peer::reached`], and returns the time from which the failure is measured.
    pub fn fails_by(
        &mut self,
        script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static,
        end: impl FnOnce(u32) -> Instant + Send,
    ) -> Failed {
        let builder = FakeBuilder::play(script);
        self.point_at(builder.port());
        let pid = self.session.pid();
        let before = private_bytes(pid);
        let over = AtomicBool::new(false);
        let (result, ended, since, most) = thread::scope(|scope| {
            let (builder, over) = (&builder, &over);
            let ending = scope.spawn(move || {
                builder.wait_until_reached();
                end(pid)
            });
            let watching = scope.spawn(move || {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = private_bytes(pid).max(most);
                    thread::sleep(Duration::from_millis(5));
                }
                most
            });
            let result = self.session.execute(CREATE);
            let ended = Instant::now();
            over.store(true, Ordering::Relaxed);
            (result, ended, ending.join().unwrap(), watching.join().unwrap())
        });
        let error = result.expect_err("the build should have failed");
        builder.expect_left();
        assert!(most < before + MEMORY, "the backend grew from {before} to {most} bytes: {error}");
        self.expect_clean();
        println!("{error}; {} KB more\n", most.saturating_sub(before) >> 10);
        Failed { error: error.server().clone(), took: ended.saturating_duration_since(since) }
    }

    /// Runs a build, cancels the statement `pause` after the script calls [`Peer::reached`], and checks that it ends soon.
    pub fn cancelled(
        &mut self,
        script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static,
        pause: Duration,
    ) -> Failed {
        let failed = self.fails_by(script, |pid| {
            thread::sleep(pause);
            let mut other = CLUSTER.session("postgres").unwrap();
            let since = Instant::now();
            other.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
            since
        });
        assert_eq!(failed.error.sqlstate, "57014", "{}", failed.error);
        assert!(failed.took < SOON, "{}: {:.1} s", failed.error, failed.took.as_secs_f64());
        failed
    }

    /// Checks that the server did not restart, that the session works, and that there is no trace of an index.
    pub fn expect_clean(&mut self) {
        let started: String = self.session.value("SELECT pg_postmaster_start_time()").unwrap();
        assert_eq!(started, self.started);
        let indexes: u32 = self.session.value("SELECT count(*) FROM pg_class WHERE relname = 'items_idx'").unwrap();
        assert_eq!(indexes, 0, "the index is there");
        assert_eq!(CLUSTER.relation_files(&self.database).unwrap(), self.files, "files are left behind");
        self.session.take_notices();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if thread::panicking() {
            // The cluster is shared, and does not print its log when a test fails.
            eprintln!("PostgreSQL's log ends with\n{}", CLUSTER.log_tail());
        }
    }
}

/// Resident memory of a backend in bytes, without shared memory.
pub fn private_bytes(pid: u32) -> u64 {
    let bytes = harness::proc_bytes(&format!("/proc/{pid}/status"), "RssAnon");
    assert!(bytes > 0, "Linux 4.5 and newer have RssAnon");
    bytes
}
