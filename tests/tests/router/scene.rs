//! A router with builders as processes of this machine, a table, and a network between PostgreSQL and the router.

use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::{
    Builder, BuilderOptions, Cluster, Column, Direction, Proxy, Session, SqlError, children, copy_rows, data_set,
    inspect, wait_for,
};

/// One cluster for all; each test has its own database.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

/// Long enough for any machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Takes a while to build after the last row was sent.
pub const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) \
                      WITH (m = 32, ef_construction = 1000, external = true)";

/// The same with pgvector's defaults.
pub const CREATE_QUICKLY: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

/// A router on free ports.
pub fn router(arguments: &[&str]) -> Builder {
    Builder::start_with(&BuilderOptions::router(arguments)).unwrap()
}

/// The processes of a router's builders.
pub fn builders(router: &Builder) -> Vec<u32> {
    router.pid().map(children).unwrap_or_default()
}

/// Waits until a router has this many builders.
pub fn wait_for_builders(router: &Builder, count: usize) {
    wait_for("the builders to come or go", PATIENCE, || Ok((builders(router).len() == count).then_some(()))).unwrap();
}

/// What a build is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Rows,
    Graph,
    Pages,
}

pub struct Scene {
    database: String,
    pub session: Option<Session>,
    pub router: Builder,
    pub proxy: Proxy,
}

impl Scene {
    pub fn new(database: &str, arguments: &[&str]) -> Self {
        let mut session = CLUSTER.database(database).unwrap();
        let (base, _) = data_set("minilm-384").unwrap();
        copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
        let router = router(arguments);
        let proxy = Proxy::start(router.address()).unwrap();
        router.attach_through(&mut session, proxy.port()).unwrap();
        Self { database: database.to_owned(), session: Some(session), router, proxy }
    }

    /// Another session of the same database, which builds through the same router.
    pub fn another_session(&self) -> Session {
        let mut session = CLUSTER.session(&self.database).unwrap();
        self.router.attach(&mut session).unwrap();
        session
    }

    /// Builds an index, looks at every page of it and drops it.
    pub fn build_and_drop(&mut self) {
        self.proxy.reset();
        let session = self.session.as_mut().expect("no build is running");
        session.execute(CREATE_QUICKLY).unwrap();
        inspect(&CLUSTER, session, "items_idx").unwrap();
        session.execute("DROP INDEX items_idx").unwrap();
    }

    /// Starts a build in the background.
    pub fn start(&mut self, sql: &'static str) -> JoinHandle<(Session, Result<(), SqlError>)> {
        let mut session = self.session.take().expect("one build at a time");
        thread::spawn(move || {
            let result = session.execute(sql);
            (session, result)
        })
    }

    /// Starts a build and comes back when it is in the middle of `phase`, where it stays.
    pub fn build_until(&mut self, phase: Phase) -> JoinHandle<(Session, Result<(), SqlError>)> {
        self.proxy.reset();
        match phase {
            Phase::Rows => self.proxy.stop_after(Direction::ToBuilder, 1 << 20),
            Phase::Graph => {}
            Phase::Pages => self.proxy.stop_after(Direction::ToClient, 1 << 20),
        }
        let building = self.start(if phase == Phase::Pages { CREATE_QUICKLY } else { CREATE });
        match phase {
            Phase::Rows => self.proxy.wait_until_stopped(Direction::ToBuilder).unwrap(),
            Phase::Pages => self.proxy.wait_until_stopped(Direction::ToClient).unwrap(),
            Phase::Graph => self.wait_for_phase("external build"),
        }
        building
    }

    /// Waits until the build of this scene says that it is in a phase.
    pub fn wait_for_phase(&self, words: &str) {
        let mut watcher = CLUSTER.session(&self.database).unwrap();
        let sql = "SELECT phase FROM pg_stat_progress_create_index WHERE datname = current_database()";
        wait_for("the build's phase", PATIENCE, || {
            let rows = watcher.query(sql)?;
            let phase = rows.first().and_then(|row| row[0].clone()).unwrap_or_default();
            Ok(phase.contains(words).then_some(()))
        })
        .unwrap();
    }
}
