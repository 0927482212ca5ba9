//! A crash at any time leaves a complete index or none.

use std::thread;
use std::time::Duration;

use harness::{Cluster, Direction, near_rows, wait_for};

use crate::scene::{DATABASE, INSERTED, Scene};

const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";
const DROP: &str = "DROP INDEX items_idx";

/// 3000 rows take 4.6 MB on their way to the builder, and 6 MB in the index.
const MOMENTS: [(Direction, u64); 4] = [
    (Direction::ToBuilder, 1 << 20),
    (Direction::ToClient, 300 << 10),
    (Direction::ToClient, 3 << 20),
    (Direction::ToClient, 5 << 20),
];

#[test]
fn a_crash_during_a_build_leaves_no_index() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    assert_eq!(scene.cluster.orphaned_files(DATABASE).unwrap(), [""; 0]);
    let mut orphans = Vec::new();
    for (direction, bytes) in MOMENTS {
        let building = scene.stop_in(CREATE, direction, bytes);
        scene.cluster.crash().unwrap();
        assert!(building.join().unwrap().is_err());
        scene.proxy.reset();
        scene.reconnect();
        scene.expect_none("items_idx");
        // At most the index's file is left, as after a crash during pgvector's own build (below).
        let now = scene.cluster.orphaned_files(DATABASE).unwrap();
        let new: Vec<&String> = now.iter().filter(|file| !orphans.contains(*file)).collect();
        println!("{bytes} bytes {direction:?}: {new:?}");
        assert!(new.len() <= 1, "{new:?}");
        orphans = now;
        scene.session.execute(CREATE).unwrap();
        scene.expect_whole("items_idx");
        scene.session.execute(DROP).unwrap();
        assert_eq!(scene.cluster.orphaned_files(DATABASE).unwrap(), orphans);
    }
}

/// What PostgreSQL itself leaves when it crashes during a build by pgvector: the file of the index.
#[test]
fn pgvectors_own_build_leaves_its_file_too() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    let mut session = scene.cluster.session(DATABASE).unwrap();
    let pid = session.pid();
    let building = thread::spawn(move || {
        session.execute("CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (m = 64, ef_construction = 1000)")
    });
    let sql = format!("SELECT tuples_done FROM pg_stat_progress_create_index WHERE pid = {pid} AND tuples_done > 100");
    wait_for("pgvector to be in the middle", Duration::from_secs(60), || {
        Ok((!scene.session.query(&sql)?.is_empty()).then_some(()))
    })
    .unwrap();
    scene.cluster.crash().unwrap();
    assert!(building.join().unwrap().is_err());
    let orphans = scene.cluster.orphaned_files(DATABASE).unwrap();
    println!("{orphans:?}");
    assert_eq!(orphans.len(), 1, "{orphans:?}");
}

#[test]
fn a_lost_postmaster_during_a_build_leaves_no_index() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    for (direction, bytes) in [MOMENTS[0], MOMENTS[2]] {
        // The backend waits for the builder, and notices that the postmaster is gone.
        let building = scene.stop_in(CREATE, direction, bytes);
        scene.cluster.lose_postmaster().unwrap();
        assert!(building.join().unwrap().is_err());
        scene.proxy.reset();
        scene.reconnect();
        scene.expect_none("items_idx");
    }
    scene.session.execute(CREATE).unwrap();
    scene.expect_whole("items_idx");
}

#[test]
fn a_committed_index_survives_crashes() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    // A checkpoint while pages arrive: some pages are in the file, the others only in the WAL.
    let building = scene.stop_in(CREATE, Direction::ToClient, 3 << 20);
    scene.session.execute("CHECKPOINT").unwrap();
    scene.proxy.reset();
    building.join().unwrap().unwrap();
    let answers = near_rows(&mut scene.session, "items", "queries", 10, false).unwrap();
    scene.cluster.crash().unwrap();
    scene.reconnect();
    assert_eq!(scene.expect_whole("items_idx"), answers);
    assert_eq!(scene.cluster.orphaned_files(DATABASE).unwrap(), [""; 0]);

    // The index is modified before another crash.
    scene.run(&[
        "INSERT INTO items SELECT id + 100000, v FROM queries",
        "DELETE FROM items WHERE id % 10 = 3",
        "VACUUM items",
        // The end of VACUUM does not flush the WAL, so the crash could undo part of it; this commit flushes it.
        "CREATE TABLE flushed ()",
    ]);
    scene.cluster.crash().unwrap();
    scene.reconnect();
    scene.expect_whole_but("items_idx", INSERTED);
}

#[test]
fn a_crash_during_a_reindex_leaves_the_old_index() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    scene.session.execute(CREATE).unwrap();
    let answers = scene.expect_whole("items_idx");
    for reindex in ["REINDEX INDEX items_idx", "REINDEX INDEX CONCURRENTLY items_idx"] {
        let building = scene.stop_in(reindex, Direction::ToClient, 3 << 20);
        scene.cluster.crash().unwrap();
        assert!(building.join().unwrap().is_err());
        scene.proxy.reset();
        scene.reconnect();
        assert_eq!(scene.expect_whole("items_idx"), answers, "{reindex}");
    }
    // As always after a failure, CONCURRENTLY leaves an invalid index, which can be dropped.
    scene.run(&["DROP INDEX items_idx_ccnew", "REINDEX INDEX CONCURRENTLY items_idx"]);
    scene.expect_whole("items_idx");
}

#[test]
fn unlogged_tables_are_empty_afterwards() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    scene
        .session
        .execute(
            "CREATE UNLOGGED TABLE fleeting AS SELECT * FROM items; \
             CREATE INDEX fleeting_idx ON fleeting USING hnsw (v vector_l2_ops) WITH (external = true)",
        )
        .unwrap();
    scene.cluster.crash().unwrap();
    scene.reconnect();
    assert_eq!(scene.session.value::<u32>("SELECT count(*) FROM fleeting").unwrap(), 0);
    scene.session.execute("INSERT INTO fleeting SELECT * FROM queries").unwrap();
    let found = near_rows(&mut scene.session, "fleeting", "queries", 1, false).unwrap();
    assert!(found.len() == 40 && found.iter().all(|(query, row)| query == row), "{found:?}");
    scene.run(&["REINDEX TABLE fleeting", "ALTER TABLE fleeting SET LOGGED"]);
    scene.cluster.crash().unwrap();
    scene.reconnect();
    assert_eq!(near_rows(&mut scene.session, "fleeting", "queries", 1, false).unwrap(), found);
}
