//! A scene in which builds can be stopped in the middle of each phase.

use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use harness::{
    Builder, BuilderOptions, Cluster, Column, Direction, Phase, Proxy, Session, SqlError, copy_rows, data_set, inspect,
    wait_for,
};

/// A cluster for all tests; each test has its own database.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

/// A bound against hanging. Which event ended a statement is in its error.
pub const SOON: Duration = Duration::from_secs(60);

/// After the last row was sent, the builder needs some seconds for the graph.
pub const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) \
                      WITH (m = 32, ef_construction = 1000, external = true)";

/// The same index with pgvector's defaults.
pub const CREATE_QUICKLY: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

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
        copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
        let builder = patient_for_a_moment();
        let proxy = Proxy::start(builder.address()).unwrap();
        builder.attach_through(&mut session, proxy.port()).unwrap();
        let files = CLUSTER.relation_files(database).unwrap();
        Self { database: database.to_owned(), session: Some(session), builder, proxy, files }
    }

    /// Starts a build and returns when it is stopped in the middle of `phase`.
    pub fn build_until(&mut self, phase: Phase) -> Building {
        self.proxy.reset();
        match phase {
            // 10 MB of rows go to the builder, 12 MB of pages come back.
            Phase::Rows => self.proxy.stop_after(Direction::ToBuilder, 1 << 20),
            Phase::Graph => {}
            Phase::Pages => self.proxy.stop_after(Direction::ToClient, 1 << 20),
        }
        let sql = if phase == Phase::Pages { CREATE_QUICKLY } else { CREATE };
        let mut session = self.session.take().expect("one build at a time");
        let pid = session.pid();
        let thread = thread::spawn(move || {
            let result = session.execute(sql);
            (session, result, Instant::now())
        });
        match phase {
            Phase::Rows => self.proxy.wait_until_stopped(Direction::ToBuilder).unwrap(),
            Phase::Pages => self.proxy.wait_until_stopped(Direction::ToClient).unwrap(),
            Phase::Graph => {
                let mut watcher = CLUSTER.session(&self.database).unwrap();
                let sql = format!("SELECT phase FROM pg_stat_progress_create_index WHERE pid = {pid}");
                wait_for("the graph to be built", Duration::from_secs(60), || {
                    let rows = watcher.query(&sql)?;
                    let phase = rows.first().and_then(|row| row[0].clone()).unwrap_or_default();
                    Ok(phase.contains("external build").then_some(()))
                })
                .unwrap();
                // Stop all further messages of the builder.
                self.proxy.stop_after(Direction::ToClient, 0);
            }
        }
        assert_eq!(self.builder.metric("lantern_index_build_active").unwrap(), 1.0);
        Building { thread, pid }
    }

    /// Takes the session back; the build must have failed, and by an event, not by the silence that follows.
    pub fn expect_failure(&mut self, building: Building, since: Instant) -> SqlError {
        let (session, result, ended) = building.thread.join().unwrap();
        self.session = Some(session);
        let error = result.expect_err("the build should have failed");
        let took = ended.duration_since(since);
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
            self.builder.expect_idle(Duration::from_secs(10)).unwrap();
        } else {
            self.builder = patient_for_a_moment();
            self.proxy = Proxy::start(self.builder.address()).unwrap();
            self.builder.attach_through(session, self.proxy.port()).unwrap();
        }
        session.execute(CREATE_QUICKLY).unwrap();
        inspect(&CLUSTER, session, "items_idx").unwrap();
        session.execute("DROP INDEX items_idx").unwrap();
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

pub struct Building {
    pub thread: JoinHandle<(Session, Result<(), SqlError>, Instant)>,
    pub pid: u32,
}

/// A builder with a short drain timeout.
fn patient_for_a_moment() -> Builder {
    let arguments = ["--drain-timeout", "3s"].map(str::to_owned).to_vec();
    Builder::start_with(&BuilderOptions { arguments, ..BuilderOptions::default() }).unwrap()
}
