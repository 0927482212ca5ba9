//! A cluster, and tables that parallel workers read.

use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use harness::{Builder, Cluster, Notice, PgConfig, Session, SqlError, wait_for};

/// One cluster for all, with workers enough for tests that run at a time; each test has its own database.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let settings = "shared_preload_libraries = 'lantern_index'\nmax_worker_processes = 64\nmax_parallel_workers = 64";
    Cluster::start_with(PgConfig::require().unwrap(), settings).unwrap()
});

/// Parallel workers of a test's own database.
const WORKERS: &str = "SELECT count(*) FROM pg_stat_activity \
                       WHERE backend_type = 'parallel worker' AND datname = current_database()";

/// Rows of [`Scene::new`].
pub const ROWS: u32 = 6000;

/// Builds an index of `slow` values; so workers come to life before the backend has read all.
pub const CREATE: &str =
    "CREATE INDEX items_idx ON items USING hnsw ((slow(v)::vector(32)) vector_l2_ops) WITH (external = true)";

/// A table of random values, some of them in many rows, and a function that makes each of them take a while.
pub struct Scene {
    pub session: Session,
    pub builder: Builder,
    cluster: &'static Cluster,
    database: String,
}

impl Scene {
    pub fn new(database: &str) -> Self {
        Self::on(&CLUSTER, database)
    }

    /// On a cluster of its own with further settings, for a test that others would notice.
    pub fn alone(settings: &str) -> Self {
        let settings = format!("shared_preload_libraries = 'lantern_index'\n{settings}");
        let cluster = Cluster::start_with(PgConfig::require().unwrap(), &settings).unwrap();
        // As that of all: it ends with this process.
        Self::on(Box::leak(Box::new(cluster)), "alone")
    }

    fn on(cluster: &'static Cluster, database: &str) -> Self {
        let mut session = cluster.database(database).unwrap();
        let builder = Builder::start().unwrap();
        builder.attach(&mut session).unwrap();
        session
            .execute(&format!(
                "SELECT setseed(0.25);
                 CREATE TABLE items (id int, v vector(32), note text);
                 INSERT INTO items SELECT i, CASE WHEN i % 5 = 0 THEN array_fill(i % 150 / 5, ARRAY[32])::real[]::vector
                         ELSE (SELECT array_agg(random() + 0 * (i + g))::vector FROM generate_series(1, 32) g) END, repeat('x', 200)
                     FROM generate_series(1, {ROWS}) i;
                 ANALYZE items;
                 CREATE FUNCTION is_worker() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS
                     $$ SELECT pg_backend_pid() <> current_setting('test.backend')::int $$;
                 CREATE FUNCTION slow(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
                     $$ BEGIN PERFORM pg_sleep(0.0005); RETURN v; END $$;
                 SET test.backend = {}",
                session.pid(),
            ))
            .unwrap();
        Self { session, builder, cluster, database: database.to_owned() }
    }

    /// How many workers may take part from now on.
    pub fn workers(&mut self, workers: u32) {
        workers_of(&mut self.session, "items", workers);
    }

    /// Another session of the same database.
    pub fn watcher(&self) -> Session {
        self.cluster.session(&self.database).unwrap()
    }

    /// A new session in place of one that was lost with all others, once the server is there again.
    pub fn reconnect(&mut self) {
        let limit = Duration::from_secs(30);
        self.session = wait_for("the server", limit, || Ok(self.cluster.session(&self.database).ok())).unwrap();
        self.builder.attach(&mut self.session).unwrap();
    }

    /// Builds with two workers; nothing of what went wrong before is left.
    pub fn expect_next_build(&mut self) {
        self.workers(2);
        let mut watcher = self.watcher();
        wait_for("the end of all workers", Duration::from_secs(30), || {
            let workers: u32 = watcher.value(WORKERS)?;
            Ok((workers == 0).then_some(()))
        })
        .unwrap();
        assert_eq!(self.session.value::<u32>("SELECT count(*) FROM pg_class WHERE relname = 'items_idx'").unwrap(), 0);
        let notices = build(&mut self.session, CREATE).unwrap();
        assert_eq!(taken_part(&notices), 2);
        assert!(read_by_workers(&notices) > 0);
    }
}

/// How many workers may take part in reading a table from now on.
pub fn workers_of(session: &mut Session, table: &str, workers: u32) {
    session
        .execute(&format!(
            "ALTER TABLE {table} SET (parallel_workers = {workers}); SET max_parallel_maintenance_workers = {workers}"
        ))
        .unwrap();
}

/// Runs a statement, and returns all that it said.
pub fn build(session: &mut Session, sql: &str) -> Result<Vec<Notice>, SqlError> {
    session.execute("SET client_min_messages = debug1")?;
    session.take_notices();
    let result = session.execute(sql);
    let notices = session.take_notices();
    session.execute("RESET client_min_messages")?;
    result.map(|()| notices)
}

/// The parallel workers of a build.
pub fn taken_part(notices: &[Notice]) -> u32 {
    let last = notices.iter().find(|notice| notice.message.starts_with("indexed ")).expect("the build's last line");
    let (_, scan) = last.detail.split_once("Scan ").unwrap();
    let scan = scan.split_once(", build").unwrap().0;
    scan.split_once('(').map_or(0, |(_, workers)| workers.split(' ').next().unwrap().parse().unwrap())
}

/// Rows of the index that workers have read.
pub fn read_by_workers(notices: &[Notice]) -> u32 {
    let line = notices.iter().find_map(|notice| notice.message.strip_prefix("parallel workers have read "));
    line.map_or(0, |line| line.split(' ').next().unwrap().parse().unwrap())
}

/// All bytes of an index but where its log records are, and the checksums, which depend on that.
pub fn bytes(session: &mut Session, index: &str) -> Vec<u8> {
    let mut bytes = fs::read(CLUSTER.relation_file(session, index).unwrap()).unwrap();
    for page in bytes.chunks_mut(8192) {
        page[..10].fill(0);
    }
    bytes
}
