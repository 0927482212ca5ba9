//! Pages have correct checksums: PostgreSQL's own program verifies them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use harness::{Builder, Cluster, PgConfig};

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

    // Also pages that were replayed from the WAL.
    scene.session.execute("REINDEX INDEX items_idx").unwrap();
    scene.cluster.crash().unwrap();
    scene.reconnect();
    assert_eq!(scene.expect_whole("items_idx").len(), answers.len());
    let file = scene.cluster.relation_file(&mut scene.session, "items_idx").unwrap();
    scene.cluster.stop().unwrap();
    scene.cluster.program("pg_checksums", &["--check"]).unwrap();

    // Counter-check: the program detects a wrong checksum.
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5 * 8192 + 5000).unwrap();
    file.write_all_at(&[!byte[0]], 5 * 8192 + 5000).unwrap();
    let said = scene.cluster.program("pg_checksums", &["--check"]).unwrap_err().to_string();
    assert!(said.contains("Bad checksums:  1"), "{said}");
}

#[test]
fn unreadable_pages_affect_only_the_advice_of_their_index() {
    let settings = "shared_preload_libraries = 'lantern_index'";
    let mut cluster =
        Cluster::start_initialized(PgConfig::require().unwrap(), settings, &["--data-checksums"]).unwrap();
    let mut session = cluster.database("damaged").unwrap();
    session
        .execute(
            "CREATE EXTENSION lantern_index; CREATE TABLE t (v vector(8)); \
             INSERT INTO t SELECT ARRAY[i, i % 7, i % 11, i % 13, 1, 2, 3, 4]::vector FROM generate_series(1, 600) i",
        )
        .unwrap();
    let names = ["fine", "flipped", "cut", "missing"];
    let files = names.map(|name| {
        session.execute(&format!("CREATE INDEX {name} ON t USING hnsw (v vector_l2_ops)")).unwrap();
        cluster.relation_file(&mut session, name).unwrap()
    });
    drop(session);
    cluster.stop().unwrap();
    let [_, flipped, cut, missing] = &files;
    File::options().write(true).open(flipped).unwrap().write_all_at(&[0x55; 8], 3 * 8192 + 5000).unwrap();
    File::options().write(true).open(cut).unwrap().set_len(0).unwrap();
    fs::remove_file(missing).unwrap();
    cluster.restart().unwrap();

    let mut session = cluster.session("damaged").unwrap();
    let mut expect = |name: &str, advice: &str, words: &str| {
        let sql = format!(
            "SELECT advice || ': ' || coalesce(reason, '') FROM lantern_index.indexes WHERE index_name = '{name}'::regclass"
        );
        // The view has all four, whatever the condition.
        assert_eq!(session.value::<u32>("SELECT count(advice) FROM lantern_index.indexes").unwrap(), 4);
        let found: String = session.value(&sql).unwrap();
        assert!(found.starts_with(&format!("{advice}: ")) && found.contains(words), "{name}: {found}");
    };
    expect("fine", "unused", "");
    expect("flipped", "check", "pages cannot be read: invalid page in block 3 of relation");
    expect("cut", "check", "the file is empty");
    expect("missing", "check", "pages cannot be read: could not open file");
    // A check finds the page, too, and nothing of the subtransactions is left open.
    let builder = Builder::start().unwrap();
    builder.attach(&mut session).unwrap();
    let by_builder = "SELECT advice FROM lantern_index.check('flipped', external => true)";
    let found: String = session.value(by_builder).unwrap();
    assert!(found.starts_with("reindex: ") && found.contains("block 3: cannot be read: invalid page"), "{found}");
    // Nor does it end the progress of the statement that it is a part of.
    let seen = cluster.data().join("seen");
    session
        .execute(&format!(
            "COPY (SELECT advice, (SELECT count(*) FROM pg_stat_progress_copy) FROM lantern_index.check('flipped')) TO '{}'",
            seen.display()
        ))
        .unwrap();
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.starts_with("reindex") && seen.ends_with("\t1\n"), "{seen}");
    let found: String = session.value("SELECT lantern_index.check_and_remember('missing')").unwrap();
    assert!(found.starts_with("reindex: ") && found.contains("could not open file"), "{found}");
    for (name, words) in [("flipped", "block 3: "), ("cut", "no meta page")] {
        let found: String = session.value(&format!("SELECT lantern_index.check_and_remember('{name}')")).unwrap();
        assert!(found.starts_with("reindex: ") && found.contains(words), "{name}: {found}");
        session.execute(&format!("REINDEX INDEX {name}")).unwrap();
        let found: String = session.value(&format!("SELECT lantern_index.check_and_remember('{name}')")).unwrap();
        assert_eq!(found, "ok", "{name}");
    }

    // An error that ends the statement leaves no subtransaction open either.
    drop(session);
    cluster.stop().unwrap();
    fs::create_dir(missing).unwrap();
    cluster.restart().unwrap();
    let mut session = cluster.session("damaged").unwrap();
    let error = session.execute("SELECT * FROM lantern_index.indexes").unwrap_err();
    assert_eq!(error.server().sqlstate, "42809", "{error}");
    session.execute("SELECT 1").unwrap();
    session
        .execute(
            "DO $$BEGIN PERFORM count(advice) FROM lantern_index.indexes; EXCEPTION WHEN OTHERS THEN NULL; END$$; \
             CREATE TABLE kept ()",
        )
        .unwrap();
    let mut other = cluster.session("damaged").unwrap();
    assert_eq!(other.value::<u32>("SELECT count(*) FROM pg_class WHERE relname = 'kept'").unwrap(), 1);
}
