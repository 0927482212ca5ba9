//! Pages get their checksums, which PostgreSQL's own program verifies.

use std::fs::File;
use std::os::unix::fs::FileExt;

use harness::{Cluster, PgConfig};

use crate::scene::Scene;

#[test]
fn data_checksums_are_right() {
    let settings = "shared_preload_libraries = 'lantern_index'";
    let cluster = Cluster::start_initialized(PgConfig::require().unwrap(), settings, &["--data-checksums"]).unwrap();
    let mut scene = Scene::new(cluster);
    assert_eq!(scene.session.value::<String>("SHOW data_checksums").unwrap(), "on");
    scene
        .session
        .execute(
            "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true); \
             CREATE UNLOGGED TABLE fleeting AS SELECT * FROM items; \
             CREATE INDEX ON fleeting USING hnsw (v vector_l2_ops) WITH (external = true)",
        )
        .unwrap();
    let answers = scene.expect_whole("items_idx");
    scene.cluster.stop().unwrap();
    let said = scene.cluster.program("pg_checksums", &["--check"]).unwrap();
    assert!(said.contains("Bad checksums:  0"), "{said}");

    scene.cluster.restart().unwrap();
    scene.reconnect();
    assert_eq!(scene.expect_whole("items_idx"), answers);

    // And from the log after a crash.
    scene.session.execute("REINDEX INDEX items_idx").unwrap();
    scene.cluster.crash().unwrap();
    scene.reconnect();
    assert_eq!(scene.expect_whole("items_idx").len(), answers.len());
    let file = scene.cluster.relation_file(&mut scene.session, "items_idx").unwrap();
    scene.cluster.stop().unwrap();
    scene.cluster.program("pg_checksums", &["--check"]).unwrap();

    // It would have seen a wrong one.
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5 * 8192 + 5000).unwrap();
    file.write_all_at(&[!byte[0]], 5 * 8192 + 5000).unwrap();
    let said = scene.cluster.program("pg_checksums", &["--check"]).unwrap_err().to_string();
    assert!(said.contains("Bad checksums:  1"), "{said}");
}
