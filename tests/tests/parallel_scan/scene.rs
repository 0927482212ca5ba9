//! A cluster, and tables that parallel workers read.

use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use harness::{Builder, Cluster, Notice, PgConfig, Session, SqlError, wait_for};

/// A cluster for all tests, with enough workers for concurrent tests; each test has its own database.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let settings = "shared_preload_libraries = 'lantern_index'\nmax_worker_processes = 64\nmax_parallel_workers = 64";
    Cluster::start_with(PgConfig::require().unwrap(), settings).unwrap()
});

/// The number of parallel workers in the test's database.
const WORKERS: &str = "SELECT count(*) FROM pg_stat_activity \
                       WHERE backend_type = 'parallel worker' AND datname = current_database()";

/// The number of rows of [`Scene::new`].
pub const ROWS: u32 = 6000;

/// Builds an index on slow values, so that workers start before the backend has read all rows.
pub const CREATE: &str =
    "CREATE INDEX items_idx ON items USING hnsw ((slow(v)::vector(32)) vector_l2_ops) WITH (external = true)";

/// A table of random values with duplicates, and a function that slows the evaluation of each value down.
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

    /// A scene with a cluster of its own and further settings, for a test that would affect others.
    pub fn alone(settings: &str) -> Self {
        let settings = format!("shared_preload_libraries = 'lantern_index'\n{settings}");
        let cluster = Cluster::start_with(PgConfig::require().unwrap(), &settings).unwrap();
        // Leaked, as the shared cluster is: it ends with this process.
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

    /// Sets the number of workers that may take part from now on.
    pub fn workers(&mut self, workers: u32) {
        workers_of(&mut self.session, "items", workers);
    }

    /// The bytes of an index without LSNs and checksums, which depend on LSNs.
    pub fn bytes(&mut self, index: &str) -> Vec<u8> {
        let mut bytes = fs::read(self.cluster.relation_file(&mut self.session, index).unwrap()).unwrap();
        for page in bytes.chunks_mut(8192) {
            page[..10].fill(0);
        }
        bytes
    }

    /// Another session of the same database.
    pub fn watcher(&self) -> Session {
        self.cluster.session(&self.database).unwrap()
    }

    /// Waits until two workers of a build wait as the condition on `pg_stat_activity` says; their process ids.
    pub fn wait_for_workers(&self, backend: u32, condition: &str) -> Vec<u32> {
        let mut watcher = self.watcher();
        let sql = format!(
            "SELECT pid FROM pg_stat_activity WHERE leader_pid = {backend} AND pid <> {backend} AND {condition}"
        );
        let workers = wait_for("two workers", Duration::from_secs(60), || {
            let rows = watcher.query(&sql)?;
            Ok((rows.len() == 2).then_some(rows))
        });
        workers.unwrap().iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect()
    }

    /// Replaces the session after a crash, once the server has recovered.
    pub fn reconnect(&mut self) {
        let limit = Duration::from_secs(30);
        self.session = wait_for("the server", limit, || Ok(self.cluster.session(&self.database).ok())).unwrap();
        self.builder.attach(&mut self.session).unwrap();
    }

    /// Checks that a build with two workers works, and that nothing of earlier failures is left.
    pub fn expect_next_build(&mut self) {
        self.workers(2);
        let mut watcher = self.watcher();
        wait_for("the end of all workers", Duration::from_secs(60), || {
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

/// Sets the number of workers that may read a table.
pub fn workers_of(session: &mut Session, table: &str, workers: u32) {
    session
        .execute(&format!(
            "ALTER TABLE {table} SET (parallel_workers = {workers}); SET max_parallel_maintenance_workers = {workers}"
        ))
        .unwrap();
}

/// Runs a statement and returns its notices.
pub fn build(session: &mut Session, sql: &str) -> Result<Vec<Notice>, SqlError> {
    session.execute("SET client_min_messages = debug1")?;
    session.take_notices();
    let result = session.execute(sql);
    let notices = session.take_notices();
    session.execute("RESET client_min_messages")?;
    result.map(|()| notices)
}

/// The number of parallel workers in a build, from its notices.
pub fn taken_part(notices: &[Notice]) -> u32 {
    let last = notices.iter().find(|notice| notice.message.starts_with("indexed ")).expect("the build's last line");
    let (_, scan) = last.detail.split_once("Scan ").unwrap();
    let scan = scan.split_once(", build").unwrap().0;
    scan.split_once('(').map_or(0, |(_, workers)| workers.split(' ').next().unwrap().parse().unwrap())
}

/// The number of index rows that workers have read, from the notices.
pub fn read_by_workers(notices: &[Notice]) -> u32 {
    let line = notices.iter().find_map(|notice| notice.message.strip_prefix("parallel workers have read "));
    line.map_or(0, |line| line.split(' ').next().unwrap().parse().unwrap())
}
