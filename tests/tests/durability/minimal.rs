//! With `wal_level = minimal` a new index is not logged in the WAL: its file is synced before the commit.

use harness::{Cluster, PgConfig, Session, near_rows};

use crate::scene::{DATABASE, INSERTED, Scene};

/// An index below this size (`wal_skip_threshold`) is logged at the commit, a larger one is synced.
const THRESHOLDS: [&str; 2] = ["0", "1GB"];

fn log_bytes(session: &mut Session) -> f64 {
    session.value("SELECT pg_current_wal_lsn() - '0/0'").unwrap()
}

#[test]
fn little_is_logged_and_nothing_lost() {
    let settings = "shared_preload_libraries = 'lantern_index'\nwal_level = minimal\nmax_wal_senders = 0";
    let mut scene = Scene::new(Cluster::start_with(PgConfig::require().unwrap(), settings).unwrap());
    for threshold in THRESHOLDS {
        let set = format!("SET wal_skip_threshold = '{threshold}'");
        scene.session.execute(&set).unwrap();
        let before = log_bytes(&mut scene.session);
        scene
            .session
            .execute("CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)")
            .unwrap();
        let logged = log_bytes(&mut scene.session) - before;
        println!("wal_skip_threshold {threshold}: {logged} bytes are logged");
        if threshold == "0" {
            assert!(logged < 1e6, "{logged} bytes are logged");
        }
        // A new table and its index in one transaction, after a subtransaction that is rolled back.
        for statement in [
            "BEGIN",
            "CREATE TABLE young (LIKE items)",
            "INSERT INTO young SELECT * FROM items",
            "SAVEPOINT one",
            "CREATE INDEX young_idx ON young USING hnsw (v vector_l2_ops) WITH (external = true)",
            "ROLLBACK TO one",
            "SAVEPOINT two",
            "CREATE INDEX young_idx ON young USING hnsw (v vector_l2_ops) WITH (external = true)",
            "RELEASE two",
            "INSERT INTO young SELECT id + 100000, v FROM queries",
            "COMMIT",
        ] {
            scene.session.execute(statement).unwrap();
        }
        let answers = near_rows(&mut scene.session, "items", "queries", 10, false).unwrap();
        let young = near_rows(&mut scene.session, "young", "queries", 10, false).unwrap();
        scene.cluster.crash().unwrap();
        scene.reconnect();
        assert_eq!(scene.expect_whole("items_idx"), answers);
        assert_eq!(near_rows(&mut scene.session, "young", "queries", 10, false).unwrap(), young);
        harness::expect_every_row(&mut scene.session, "young", INSERTED).unwrap();
        harness::inspect(&scene.cluster, &mut scene.session, "young_idx").unwrap();
        assert_eq!(scene.cluster.orphaned_files(DATABASE).unwrap(), [""; 0]);

        // REINDEX makes a new file for the existing index.
        scene.session.execute(&set).unwrap();
        scene.session.execute("REINDEX INDEX items_idx").unwrap();
        scene.cluster.crash().unwrap();
        scene.reconnect();
        scene.expect_whole("items_idx");
        scene.session.execute("DROP INDEX items_idx; DROP TABLE young").unwrap();
    }
}
