//! A table of real vectors, a builder, and a network between PostgreSQL and the builder.

use std::thread::{self, JoinHandle};

use harness::{
    Builder, Cluster, Column, Direction, Proxy, Session, SqlError, copy_rows, data_set, expect_every_row, inspect,
    near_rows,
};

pub const DATABASE: &str = "durable";
pub const ROWS: usize = 3000;
/// The least id of the rows that pgvector inserts.
pub const INSERTED: u32 = 100_000;

/// Pairs of query number and row number.
pub type Answers = Vec<(u32, u32)>;

pub struct Scene {
    pub cluster: Cluster,
    pub builder: Builder,
    pub proxy: Proxy,
    pub session: Session,
}

impl Scene {
    /// Table `items` with `ROWS` rows and table `queries`, no index.
    pub fn new(cluster: Cluster) -> Self {
        let session = cluster.database(DATABASE).unwrap();
        let builder = Builder::start().unwrap();
        let proxy = Proxy::start(builder.address()).unwrap();
        let mut scene = Self { cluster, builder, proxy, session };
        let (base, queries) = data_set("minilm-384").unwrap();
        copy_rows(&mut scene.session, "items", Column::Vector, &base.truncated(ROWS)).unwrap();
        copy_rows(&mut scene.session, "queries", Column::Vector, &queries.truncated(40)).unwrap();
        scene.attach();
        scene
    }

    /// Makes the session use the builder, through the proxy.
    pub fn attach(&mut self) {
        self.builder.attach_through(&mut self.session, self.proxy.port()).unwrap();
    }

    /// Replaces a lost session by a new one.
    pub fn reconnect(&mut self) {
        self.session = self.cluster.session(DATABASE).unwrap();
        self.attach();
    }

    /// Runs statements, each in its own transaction.
    pub fn run(&mut self, statements: &[&str]) {
        for statement in statements {
            self.session.execute(statement).unwrap();
        }
    }

    /// Starts a build and returns when it is stopped after `bytes` in a direction.
    pub fn stop_in(&self, sql: &str, direction: Direction, bytes: u64) -> JoinHandle<Result<(), SqlError>> {
        self.proxy.reset();
        self.proxy.stop_after(direction, bytes);
        let mut session = self.cluster.session(DATABASE).unwrap();
        self.builder.attach_through(&mut session, self.proxy.port()).unwrap();
        let sql = sql.to_owned();
        let building = thread::spawn(move || session.execute(&sql));
        self.proxy.wait_until_stopped(direction).unwrap();
        building
    }

    /// Checks that `items` has a complete index that agrees with the table. Returns the results of searches.
    pub fn expect_whole(&mut self, index: &str) -> Answers {
        self.expect_whole_but(index, u32::MAX)
    }

    /// [`Scene::expect_whole`] where pgvector has inserted the rows with ids of `inserted` or more, of which it may have stranded some.
    pub fn expect_whole_but(&mut self, index: &str, inserted: u32) -> Answers {
        inspect(&self.cluster, &mut self.session, index).unwrap();
        expect_whole(&mut self.session, inserted)
    }

    /// Checks that there is no such relation.
    pub fn expect_none(&mut self, index: &str) {
        let sql = format!("SELECT count(*) FROM pg_class WHERE relname = '{index}'");
        assert_eq!(self.session.value::<u32>(&sql).unwrap(), 0, "{index} is there");
    }
}

/// Checks that the index of `items` that the planner uses agrees with the table. Returns the results of searches.
pub fn expect_whole(session: &mut Session, inserted: u32) -> Answers {
    expect_every_row(session, "items", inserted).unwrap();
    let found = near_rows(session, "items", "queries", 10, false).unwrap();
    let exact = near_rows(session, "items", "queries", 10, true).unwrap();
    let hits = found.iter().filter(|answer| exact.contains(answer)).count();
    assert!(hits * 100 >= exact.len() * 97, "{hits} of {} rows are found", exact.len());
    found
}
