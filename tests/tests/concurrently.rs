//! CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY while four sessions write: no row is lost, and none is indexed twice.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use harness::{Builder, Cluster, Column, Notice, READ_ALL, Session, copy_rows, data_set, expect_each_once, inspect};

const WRITERS: u32 = 4;
const ROWS: u32 = 3000;
const VACUUMED: &str = "after VACUUM";
/// The least number of transactions per writer, even if the build ends earlier.
const LEAST: u32 = 100;
/// The pause between a writer's transactions: without it the statement, at its end, would insert too many missed rows one by one.
const PAUSE: Duration = Duration::from_millis(4);

/// Inserts rows, updates the indexed column and others, and deletes rows, in transactions of which some are
/// rolled back. Each writer has its own rows.
fn write(session: &mut Session, writer: u32, first_id: u32, stop: &AtomicBool, done: &AtomicU32) {
    let mut step = 0u32;
    while step < LEAST || !stop.load(Ordering::Relaxed) {
        let at = step * WRITERS + writer;
        let own = |n: u32| (n.wrapping_mul(7919) % (ROWS / WRITERS)) * WRITERS + writer;
        let end = if step % 10 == 9 { "ROLLBACK" } else { "COMMIT" };
        session
            .execute(&format!(
                "BEGIN; \
                 INSERT INTO items SELECT {}, v FROM source WHERE id = {}; \
                 UPDATE items SET v = (SELECT v FROM source WHERE id = {}) WHERE id = {}; \
                 UPDATE items SET note = {step} WHERE id = {}; \
                 DELETE FROM items WHERE id = {}; {end}",
                first_id + at,
                ROWS + at % 2000,
                ROWS + 2000 + at % 2000,
                own(step),
                own(step + 1),
                own(step + 2),
            ))
            .unwrap();
        done.fetch_add(1, Ordering::Relaxed);
        step += 1;
        thread::sleep(PAUSE);
    }
}

fn scene(cluster: &Cluster, builder: &Builder, database: &str) -> Session {
    let mut session = cluster.database(database).unwrap();
    builder.attach(&mut session).unwrap();
    copy_rows(&mut session, "source", Column::Vector, &data_set("glove-100").unwrap().0).unwrap();
    session
        .execute(&format!(
            "ALTER TABLE source ADD PRIMARY KEY (id); \
             CREATE TABLE items (id int PRIMARY KEY, v vector(100), note int) WITH (fillfactor = 60); \
             INSERT INTO items SELECT id, v FROM source WHERE id < {ROWS}"
        ))
        .unwrap();
    session
}

/// Runs a statement while the writers work; returns how many of their transactions have ended during it.
fn while_writing(cluster: &Cluster, database: &str, session: &mut Session, statement: &str) -> u32 {
    let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
    let first_id: u32 = session.value("SELECT max(id) + 1 FROM items").unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (stop, done) = (&stop, &done);
            let mut session = cluster.session(database).unwrap();
            scope.spawn(move || write(&mut session, writer, first_id, stop, done));
        }
        let before = done.load(Ordering::Relaxed);
        let result = session.execute(statement);
        let changes = done.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        result.unwrap();
        changes
    })
}

/// Reads the whole table through the index on `value` and without it.
fn compare(cluster: &Cluster, session: &mut Session, value: &str, what: &str) {
    let ids = |session: &mut Session, sql: &str| -> Vec<u32> {
        session.query(sql).unwrap().into_iter().flatten().map(|id| id.unwrap().parse().unwrap()).collect()
    };
    let wanted = ids(session, "SELECT id FROM items");
    session.execute(&format!("SET enable_seqscan = off; SET enable_sort = off; {READ_ALL}")).unwrap();
    let all = format!("SELECT id FROM items ORDER BY {value} <-> (SELECT v FROM source WHERE id = 42)");
    session.expect_index_scan("items_v", &all).unwrap();
    let found = ids(session, &all);
    session
        .execute(
            "RESET enable_seqscan; RESET enable_sort; RESET hnsw.iterative_scan; RESET hnsw.max_scan_tuples; \
             RESET hnsw.scan_mem_multiplier",
        )
        .unwrap();
    // Updates, too, insert into the index, so that a row with any id may be stranded.
    let stranded = expect_each_once(&found, &wanted, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
    println!("{what}: {} rows, {stranded} stranded", wanted.len());
    let report = inspect(cluster, session, "items_v").unwrap();
    if what == VACUUMED {
        // VACUUM has removed dead rows, so the index holds each row once.
        assert!(report.contains(&format!(" {} rows of which", wanted.len())), "{} rows:\n{report}", wanted.len());
    }
}

/// Builds and rebuilds an index on `value` while four sessions write. Returns what the builds said.
fn build_while_writing(cluster: &Cluster, session: &mut Session, database: &str, value: &str) -> Vec<Notice> {
    let create = format!(
        "CREATE INDEX CONCURRENTLY items_v ON items USING hnsw (({value}) vector_l2_ops) WITH (external = true)"
    );
    let mut said = Vec::new();
    for (what, statement) in [("create", create.as_str()), ("reindex", "REINDEX INDEX CONCURRENTLY items_v")] {
        session.take_notices();
        session.execute(&format!("SET client_min_messages = debug1; SET test.backend = {}", session.pid())).unwrap();
        let changes = while_writing(cluster, database, session, statement);
        session.execute("RESET client_min_messages; RESET test.backend").unwrap();
        let notices = session.take_notices();
        assert_eq!(notices.iter().filter(|notice| notice.message.starts_with("indexed ")).count(), 1, "{notices:?}");
        said.extend(notices);
        println!("{what}: {changes} transactions meanwhile");
        // As many as there are writers may have begun before the statement.
        assert!(changes > WRITERS, "nobody wrote during the build");
        let valid: String =
            session.value("SELECT indisvalid FROM pg_index WHERE indexrelid = 'items_v'::regclass").unwrap();
        assert_eq!(valid, "t");
        compare(cluster, session, value, what);
        session.execute("VACUUM items").unwrap();
        compare(cluster, session, value, VACUUMED);
    }
    said
}

#[test]
fn rows_written_during_a_build_are_indexed_once() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = scene(&cluster, &builder, "writers");
    build_while_writing(&cluster, &mut session, "writers", "v");
}

/// The leader is slowed down, so that workers read most of the table.
#[test]
fn rows_written_beside_parallel_workers_are_indexed_once() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = scene(&cluster, &builder, "workers");
    session
        .execute(
            "CREATE FUNCTION late(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN
                 IF pg_backend_pid() = nullif(current_setting('test.backend', true), '')::int THEN PERFORM pg_sleep(0.003); END IF;
                 RETURN v; END $$;
             ALTER TABLE items SET (parallel_workers = 2); SET max_parallel_maintenance_workers = 2",
        )
        .unwrap();
    let said = build_while_writing(&cluster, &mut session, "workers", "late(v)::vector(100)");
    let read = said.iter().filter_map(|notice| {
        let line = notice.message.strip_prefix("parallel workers have read ")?;
        line.split(' ').next()?.parse::<u32>().ok()
    });
    let read: Vec<u32> = read.collect();
    println!("rows that workers have read: {read:?}");
    assert!(read.len() == 2 && read.iter().all(|&rows| rows > ROWS / 4), "{read:?}");
}
