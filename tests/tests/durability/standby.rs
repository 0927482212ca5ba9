//! A streaming standby receives an externally built index like any other.

use std::fs;

use harness::{Cluster, Session, inspect, near_rows};

use crate::scene::{DATABASE, Scene, expect_whole};

#[test]
fn a_standby_answers_from_the_index() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    let standby = scene.cluster.standby().unwrap();
    // The index is built while the standby is replaying.
    scene
        .session
        .execute(
            "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true); \
             CREATE UNLOGGED TABLE fleeting AS SELECT * FROM items; \
             CREATE INDEX fleeting_idx ON fleeting USING hnsw (v vector_l2_ops) WITH (external = true)",
        )
        .unwrap();
    near_rows(&mut scene.session, "fleeting", "queries", 10, false).unwrap();
    let answers = scene.expect_whole("items_idx");
    // A standby writes its dirty pages when it replays the primary's checkpoint record.
    scene.session.execute("CHECKPOINT").unwrap();
    standby.catch_up(&mut scene.session).unwrap();

    let mut reader = standby.session(DATABASE).unwrap();
    inspect(&standby, &mut reader, "items_idx").unwrap();
    expect_same_bytes(&mut scene, &standby, &mut reader);
    assert_eq!(expect_whole(&mut reader, u32::MAX), answers);
    let error = near_rows(&mut reader, "fleeting", "queries", 10, false).unwrap_err();
    assert!(
        format!("{error:#}").contains("cannot access temporary or unlogged relations during recovery"),
        "{error:#}"
    );
    let error =
        reader.execute("CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap_err();
    assert_eq!(error.server().sqlstate, "25006", "{error}");

    // Later changes of the index reach the standby as well.
    scene.run(&[
        "DELETE FROM items WHERE id % 10 = 3",
        "VACUUM items",
        "INSERT INTO items SELECT id + 100000, v FROM queries",
        "REINDEX INDEX items_idx",
        "INSERT INTO items SELECT id + 200000, v FROM queries",
    ]);
    let answers = scene.expect_whole("items_idx");
    scene.session.execute("CHECKPOINT").unwrap();
    standby.catch_up(&mut scene.session).unwrap();
    inspect(&standby, &mut reader, "items_idx").unwrap();
    assert_eq!(expect_whole(&mut reader, u32::MAX), answers);
    drop(reader);

    // The standby is promoted: its indexes are writable, and it can build. Unlogged tables and their indexes are empty.
    scene.cluster.stop().unwrap();
    standby.promote().unwrap();
    scene.cluster = standby;
    scene.reconnect();
    scene.session.execute("INSERT INTO items SELECT id + 300000, v FROM queries").unwrap();
    scene.expect_whole("items_idx");
    assert_eq!(scene.session.value::<u32>("SELECT count(*) FROM fleeting").unwrap(), 0);
    scene.session.execute("INSERT INTO fleeting SELECT * FROM queries").unwrap();
    let found = near_rows(&mut scene.session, "fleeting", "queries", 1, false).unwrap();
    assert!(found.len() == 40 && found.iter().all(|(query, row)| query == row), "{found:?}");
    scene.run(&["REINDEX TABLE items", "REINDEX TABLE fleeting"]);
    scene.expect_whole("items_idx");
}

/// The file of an index that nobody has written to since it was built has the same bytes here and there, LSNs and checksums included.
fn expect_same_bytes(scene: &mut Scene, standby: &Cluster, reader: &mut Session) {
    let primary = fs::read(scene.cluster.relation_file(&mut scene.session, "items_idx").unwrap()).unwrap();
    let copy = fs::read(standby.relation_file(reader, "items_idx").unwrap()).unwrap();
    assert_eq!(copy.len(), primary.len());
    let blocks = primary.chunks(8192).zip(copy.chunks(8192));
    let differ: Vec<usize> =
        blocks.enumerate().filter(|(_, (primary, copy))| primary != copy).map(|(block, _)| block).collect();
    assert!(differ.is_empty(), "{} blocks differ, the first is {:?}", differ.len(), differ.first());
}

/// A standby cannot assign transaction ids, so these functions must not need one.
#[test]
fn functions_that_only_read_run_on_a_standby() {
    let mut scene = Scene::new(Cluster::start().unwrap());
    let standby = scene.cluster.standby().unwrap();
    scene.run(&[
        "CREATE EXTENSION lantern_index",
        "CREATE TABLE lexical (v sparsevec(100))",
        "INSERT INTO lexical SELECT format('{%s:1}/100', 1 + i % 100)::sparsevec FROM generate_series(1, 2000) i",
        "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)",
        "CREATE UNLOGGED TABLE fleeting (v vector(3))",
        "DELETE FROM items WHERE id % 10 <> 3",
        "VACUUM items",
        "ANALYZE",
    ]);
    standby.catch_up(&mut scene.session).unwrap();
    let mut reader = standby.session(DATABASE).unwrap();
    let advice: String = reader.value("SELECT advice FROM lantern_index.check('items_idx')").unwrap();
    assert!(advice.starts_with("reindex: ") && advice.contains("are deleted"), "{advice}");
    let advice: String = reader.value("SELECT advice FROM lantern_index.indexes").unwrap();
    assert_eq!(advice, "rebuild");
    let bytes: f64 = reader.value("SELECT index_bytes FROM lantern_index.estimate('lexical', 'v')").unwrap();
    assert!(bytes > 0.0);
    scene.builder.attach(&mut reader).unwrap();
    let choices: u32 = reader.value("SELECT count(*) FROM lantern_index.advise('lexical', 'v', 'l2')").unwrap();
    assert!(choices > 0);
    for function in ["estimate", "advise"] {
        let failed = reader.execute(&format!("SELECT * FROM lantern_index.{function}('fleeting', 'v')")).unwrap_err();
        assert_eq!(failed.server().sqlstate, "0A000", "{failed}");
        assert_eq!(failed.server().message, "cannot access temporary or unlogged relations during recovery");
    }
}
