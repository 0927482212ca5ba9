//! A router with builders as processes of this machine, a table, and a proxy between PostgreSQL and the router.

use std::sync::LazyLock;
use std::time::Duration;

use harness::{
    Builder, BuilderOptions, Building, Cluster, Column, Phase, Proxy, Session, children, copy_rows, data_set, inspect,
    wait_for,
};

/// A cluster for all tests; each test has its own database.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

/// Long enough for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// After the last row was sent, the builder needs some time for the graph.
pub const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) \
                      WITH (m = 32, ef_construction = 1000, external = true)";

/// The same index with pgvector's defaults.
pub const CREATE_QUICKLY: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

/// The process ids of a router's builders.
pub fn builders(router: &Builder) -> Vec<u32> {
    router.pid().map(children).unwrap_or_default()
}

/// Waits until a router has this many builders.
pub fn wait_for_builders(router: &Builder, count: usize) {
    wait_for("the builders to come or go", PATIENCE, || Ok((builders(router).len() == count).then_some(()))).unwrap();
}

pub struct Scene {
    database: String,
    pub session: Option<Session>,
    pub router: Builder,
    pub proxy: Proxy,
}

impl Scene {
    pub fn new(database: &str, arguments: &[&str]) -> Self {
        Self::with(database, &BuilderOptions::router(arguments))
    }

    pub fn with(database: &str, options: &BuilderOptions) -> Self {
        let mut session = CLUSTER.database(database).unwrap();
        let (base, _) = data_set("minilm-384").unwrap();
        copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
        let router = Builder::start_with(options).unwrap();
        let proxy = Proxy::start(router.address()).unwrap();
        router.attach_through(&mut session, proxy.port()).unwrap();
        Self { database: database.to_owned(), session: Some(session), router, proxy }
    }

    /// Another session with the same database and router.
    pub fn another_session(&self) -> Session {
        let mut session = CLUSTER.session(&self.database).unwrap();
        self.router.attach(&mut session).unwrap();
        session
    }

    /// Builds an index, verifies its pages and drops it.
    pub fn build_and_drop(&mut self) {
        self.proxy.reset();
        let session = self.session.as_mut().expect("no build is running");
        session.execute(CREATE_QUICKLY).unwrap();
        inspect(&CLUSTER, session, "items_idx").unwrap();
        session.execute("DROP INDEX items_idx").unwrap();
    }

    /// Starts a build in the background.
    pub fn start(&mut self, sql: &str) -> Building {
        self.session.take().expect("one build at a time").start(sql)
    }

    /// Starts a build and returns when it is stopped in the middle of `phase`.
    pub fn build_until(&mut self, phase: Phase) -> Building {
        let session = self.session.take().expect("one build at a time");
        let mut watcher = CLUSTER.session(&self.database).unwrap();
        let sql = if phase == Phase::Pages { CREATE_QUICKLY } else { CREATE };
        phase.reach(&self.proxy, session, &mut watcher, sql).unwrap()
    }
}
