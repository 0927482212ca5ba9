//! pgvector maintains an externally built index like its own: inserts, updates, deletes, VACUUM and REINDEX.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use harness::{
    Builder, Cluster, Column, Metric, Recall, Session, copy_rows, data_set, exact_neighbors, inspect, recall,
};

/// Rows of the table that changes, and those of them that are there when its index is built.
const ROWS: usize = 4000;
const HALF: usize = 2000;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());
static BUILDER: LazyLock<Builder> = LazyLock::new(|| Builder::start().unwrap());

fn database(name: &str) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    BUILDER.attach(&mut session).unwrap();
    session
}

#[test]
fn insert_update_delete_vacuum_reindex() {
    let mut session = database("dml");
    let (base, queries) = data_set("minilm-384").unwrap();
    let (base, queries) = (base.truncated(ROWS), queries.truncated(300));
    let exact = exact_neighbors(&base, &queries, Metric::Cosine, 10);
    copy_rows(&mut session, "everything", Column::Vector, &base).unwrap();
    copy_rows(&mut session, "queries", Column::Vector, &queries).unwrap();
    let mut found = Vec::new();
    for (table, external) in [("stock", "false"), ("ours", "true")] {
        // The index is built from half the rows, and from some that are updated or deleted later.
        session
            .execute(&format!(
                "CREATE TABLE {table} AS SELECT id, v FROM everything WHERE id < {HALF}; \
                 UPDATE {table} SET v = v - v - v WHERE id % 10 = 0; \
                 CREATE INDEX {table}_idx ON {table} USING hnsw (v vector_cosine_ops) WITH (external = {external})"
            ))
            .unwrap();
        session.execute(&format!("INSERT INTO {table} SELECT id, v FROM everything WHERE id >= {HALF}")).unwrap();
        session.execute(&format!("UPDATE {table} SET v = v - v - v WHERE id % 10 = 0 AND id < {HALF}")).unwrap();
        session.execute(&format!("DELETE FROM {table} WHERE id % 7 = 0")).unwrap();
        session.execute(&format!("VACUUM {table}")).unwrap();
        session.execute(&format!("INSERT INTO {table} SELECT id, v FROM everything WHERE id % 7 = 0")).unwrap();
        session.execute(&format!("VACUUM ANALYZE {table}")).unwrap();
        inspect(&CLUSTER, &mut session, &format!("{table}_idx")).unwrap();
        let search = Recall { table, queries: "queries", metric: Metric::Cosine, exact: &exact };
        found.push([40, 200].map(|ef| recall(&mut session, search, ef).unwrap()));
    }
    println!("after changes: stock {:.4?}, ours {:.4?}", found[0], found[1]);
    for (stock, ours) in found[0].iter().zip(found[1]) {
        assert!(ours >= stock - 0.03, "{found:.4?}");
    }

    let search = Recall { table: "ours", queries: "queries", metric: Metric::Cosine, exact: &exact };
    let indexed = format!("indexed {ROWS} elements");
    for how in ["INDEX ours_idx", "INDEX CONCURRENTLY ours_idx", "TABLE ours"] {
        session.take_notices();
        session.execute(&format!("REINDEX {how}")).unwrap();
        let built = session.take_notices().iter().any(|notice| notice.message.starts_with(&indexed));
        assert!(built, "REINDEX {how} was not external");
        inspect(&CLUSTER, &mut session, "ours_idx").unwrap();
        assert!(recall(&mut session, search, 200).unwrap() > 0.95);
    }
    // Rebuild in the database. The option concerns builds only, so ALTER INDEX waits for no reader.
    let mut reader = CLUSTER.session("dml").unwrap();
    reader.execute("BEGIN; SELECT count(*) FROM ours").unwrap();
    session.execute("SET lock_timeout = '10s'; ALTER INDEX ours_idx RESET (external)").unwrap();
    reader.execute("COMMIT").unwrap();
    session.execute("REINDEX INDEX ours_idx").unwrap();
    assert!(session.take_notices().iter().all(|notice| !notice.message.starts_with("indexed")));
    // Rebuild externally again.
    session.execute("ALTER INDEX ours_idx SET (external = true)").unwrap();
    session.execute("REINDEX INDEX ours_idx").unwrap();
    assert!(session.take_notices().iter().any(|notice| notice.message.starts_with(&indexed)));
}

#[test]
fn rows_moved_during_a_concurrent_build_are_found() {
    let mut session = database("concurrent_rows");
    let (base, _) = data_set("minilm-384").unwrap();
    copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
    let mut writer = CLUSTER.session("concurrent_rows").unwrap();
    let (stop, moved) = (AtomicBool::new(false), AtomicU32::new(0));
    let during = thread::scope(|scope| {
        scope.spawn(|| {
            // At least the 300 rows that are searched below, and at most the whole table.
            for id in (0..7000).take_while(|&id| id < 300 || !stop.load(Ordering::Relaxed)) {
                let new = id + 10_000;
                writer.execute(&format!("INSERT INTO items SELECT {new}, v FROM items WHERE id = {id}")).unwrap();
                writer.execute(&format!("DELETE FROM items WHERE id = {id}")).unwrap();
                moved.fetch_add(1, Ordering::Relaxed);
                // At its end the statement inserts the rows that it has missed, and must keep up.
                thread::sleep(Duration::from_millis(4));
            }
        });
        let before = moved.load(Ordering::Relaxed);
        let result = session.execute(
            "CREATE INDEX CONCURRENTLY items_idx ON items USING hnsw (v vector_cosine_ops) WITH (external = true)",
        );
        let during = moved.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        result.unwrap();
        during
    });
    println!("{during} of {moved:?} rows moved meanwhile");
    // One may have been on its way before the statement.
    assert!(during > 1, "no row changed during the build");
    session.execute("VACUUM items").unwrap();
    inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    session.execute("SET enable_seqscan = off; SET hnsw.ef_search = 200").unwrap();
    let themselves = "SELECT count(*) FROM items a, LATERAL (SELECT id FROM items b ORDER BY b.v <=> a.v LIMIT 1) n \
                      WHERE a.id BETWEEN 10000 AND 10299 AND n.id = a.id";
    session.expect_index_scan("items_idx", themselves).unwrap();
    let found: u32 = session.value(themselves).unwrap();
    assert!(found >= 290, "{found} of 300 moved rows are found");
}

#[test]
fn vacuum_after_a_few_deletes_writes_little_wal() {
    // The WAL of a cluster is that of all its databases.
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = cluster.database("vacuum").unwrap();
    builder.attach(&mut session).unwrap();
    let (base, _) = data_set("glove-100").unwrap();
    let mut costs = Vec::new();
    for (table, external) in [("stock", "false"), ("ours", "true")] {
        copy_rows(&mut session, table, Column::Vector, &base).unwrap();
        session
            .execute(&format!("CREATE INDEX ON {table} USING hnsw (v vector_l2_ops) WITH (external = {external})"))
            .unwrap();
        // VACUUM the table first, so that the next VACUUM's cost is that of the index.
        session.execute(&format!("VACUUM FREEZE {table}")).unwrap();
        // Several rows, since the in-degree of a single one is random.
        session.execute(&format!("DELETE FROM {table} WHERE id % 350 = 9; CHECKPOINT")).unwrap();
        let position: String = session.value("SELECT pg_current_wal_insert_lsn()").unwrap();
        session.execute(&format!("VACUUM (INDEX_CLEANUP ON) {table}")).unwrap();
        let wal: f64 = session.value(&format!("SELECT pg_current_wal_insert_lsn() - '{position}'::pg_lsn")).unwrap();
        costs.push(wal);
    }
    println!("vacuum, bytes of WAL: stock {}, ours {}", costs[0], costs[1]);
    // About twice as many pages change as in pgvector's own index. With layer-0 lists that are not full, VACUUM would search neighbors for
    // all elements, and write all pages several times.
    assert!(costs[1] <= 4.0 * costs[0], "{costs:?}");
}

#[test]
fn lists_at_layer_0_are_full() {
    let mut session = database("full_lists");
    let (base, _) = data_set("glove-100").unwrap();
    copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
    session.execute("CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap();
    let report = inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    // Every VACUUM searches new neighbors for elements whose lists are not full.
    assert!(report.contains("; 0 layer-0 lists not full"), "{report}");
    assert!(report.contains("7000 elements, 7000 reachable"), "{report}");
}
