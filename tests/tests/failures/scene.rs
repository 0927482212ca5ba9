//! A scene in which builds can be stopped in the middle of each phase.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    Builder, BuilderOptions, Building, Cluster, Column, Phase, Proxy, Session, SqlError, copy_rows, data_set, inspect,
};

/// A cluster for all tests; each test has its own database.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

/// A bound against hanging. Which event ended a statement is in its error.
pub const SOON: Duration = Duration::from_secs(60);

/// Enough for some MB of rows and of pages, more than a stopped proxy holds.
const ROWS: usize = 3000;

pub const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

/// A table, a builder, and a network between PostgreSQL and the builder.
pub struct Scene {
    database: String,
    pub session: Option<Session>,
    pub builder: Builder,
    pub proxy: Proxy,
    files: Vec<String>,
}

impl Scene {
    pub fn new(database: &str) -> Self {
        let mut session = CLUSTER.database(database).unwrap();
        let (base, _) = data_set("minilm-384").unwrap();
        copy_rows(&mut session, "items", Column::Vector, &base.truncated(ROWS)).unwrap();
        let builder = builder_that_drains_briefly();
        let proxy = Proxy::start(builder.address()).unwrap();
        builder.attach_through(&mut session, proxy.port()).unwrap();
        let files = CLUSTER.relation_files(database).unwrap();
        Self { database: database.to_owned(), session: Some(session), builder, proxy, files }
    }

    /// Starts a build and returns when it is stopped in the middle of `phase`, with the id of its backend.
    pub fn build_until(&mut self, phase: Phase) -> (Building, u32) {
        let session = self.session.take().expect("one build at a time");
        let pid = session.pid();
        let mut watcher = CLUSTER.session(&self.database).unwrap();
        let building = phase.reach(&self.proxy, session, &mut watcher, CREATE).unwrap();
        assert_eq!(self.builder.metric("lantern_index_build_active").unwrap(), 1.0);
        (building, pid)
    }

    /// Takes the session back; the build must have failed, and by an event, not by the silence that follows.
    pub fn expect_failure(&mut self, building: Building, since: Instant) -> SqlError {
        let (session, result) = building.join().unwrap();
        let took = since.elapsed();
        self.session = Some(session);
        let error = result.expect_err("the build should have failed");
        assert!(took <= SOON, "the statement ended {:.1} s later: {error}", took.as_secs_f64());
        assert!(!error.server().detail.contains("silent"), "the event was not noticed: {error}");
        println!("{error}\n");
        error
    }

    /// Checks that nothing is left of the build, and that another one works.
    pub fn expect_clean(&mut self) {
        self.proxy.reset();
        assert_eq!(CLUSTER.relation_files(&self.database).unwrap(), self.files, "files are left behind");
        let session = self.session.as_mut().unwrap();
        assert_eq!(session.value::<u32>("SELECT count(*) FROM pg_class WHERE relname = 'items_idx'").unwrap(), 0);
        if self.builder.pid().is_some() {
            self.builder.expect_idle(SOON).unwrap();
        } else {
            self.builder = builder_that_drains_briefly();
            self.proxy = Proxy::start(self.builder.address()).unwrap();
            self.builder.attach_through(session, self.proxy.port()).unwrap();
        }
        session.execute(CREATE).unwrap();
        inspect(&CLUSTER, session, "items_idx").unwrap();
        session.execute("DROP INDEX items_idx").unwrap();
        // The next build must be the only one.
        self.builder.expect_idle(SOON).unwrap();
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

/// A builder with a short drain timeout.
fn builder_that_drains_briefly() -> Builder {
    Builder::start_with(&BuilderOptions::serve(&["--drain-timeout", "3s"])).unwrap()
}
