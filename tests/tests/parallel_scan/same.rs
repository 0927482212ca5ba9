//! The index is the same, whichever process reads its rows.

use harness::inspect;

use crate::scene::{CLUSTER, CREATE, ROWS, Scene, build, read_by_workers, taken_part, workers_of};

/// Builds an index with each number of workers, and compares the pages.
fn expect_same(scene: &mut Scene, table: &str, create: &str, index: &str) {
    let mut first = None;
    for workers in [0, 1, 2, 4] {
        let session = &mut scene.session;
        workers_of(session, table, workers);
        session.execute(&format!("DROP INDEX IF EXISTS {index}")).unwrap();
        let notices = build(session, create).unwrap();
        assert_eq!(taken_part(&notices), workers, "{create}");
        let mut counts = |name: &str| -> f64 {
            session.value(&format!("SELECT reltuples FROM pg_class WHERE relname = '{name}'")).unwrap()
        };
        let found = (counts(table), counts(index), scene.bytes(index));
        inspect(&CLUSTER, &mut scene.session, index).unwrap();
        println!("{table}: {workers} workers read {} of {} rows", read_by_workers(&notices), found.1);
        let expected = first.get_or_insert_with(|| found.clone());
        assert_eq!((found.0, found.1), (expected.0, expected.1), "{create}: rows with {workers} workers");
        assert!(found.2 == expected.2, "{create}: not the same bytes with {workers} workers");
    }
}

/// Tables large enough for workers to start while the backend reads.
#[test]
fn bytes_do_not_depend_on_workers() {
    let mut scene = Scene::new("same_bytes");
    // Tables of each type, with duplicates, zeros and NULLs.
    scene
        .session
        .execute(
            "SELECT setseed(0.5);
             CREATE TABLE wide AS SELECT i AS id, (SELECT array_agg(random() - 0.5 + 0 * (i + g)) FROM generate_series(1, 768) g) AS a
                 FROM generate_series(1, 2000) i;
             CREATE TABLE narrow AS SELECT i AS id, (SELECT array_agg(round((random() - 0.5)::numeric, 2) + 0 * (i + g))
                     FROM generate_series(1, 40) g) AS a FROM generate_series(1, 10000) i;
             INSERT INTO narrow SELECT id + 20000, a FROM narrow WHERE id % 40 = 7;
             INSERT INTO narrow SELECT 30000 + i, array_fill(i % 3, ARRAY[40]) FROM generate_series(1, 100) i;
             INSERT INTO narrow VALUES (40000, NULL);
             CREATE TABLE out_of_line (id int, v vector(768));
             INSERT INTO out_of_line SELECT id, a::real[]::vector FROM wide;
             CREATE TABLE in_line AS SELECT id, a::real[]::vector(40) AS v FROM narrow;
             CREATE TABLE halves AS SELECT id, a::real[]::vector::halfvec(40) AS v FROM narrow;
             CREATE TABLE sparse AS SELECT id, (SELECT array_agg(CASE WHEN abs(x) > 0.4 THEN x ELSE 0 END) FROM unnest(a) x)
                     ::real[]::vector::sparsevec(40) AS v FROM narrow;
             CREATE TABLE bits AS SELECT id, binary_quantize(a::real[]::vector)::bit(40) AS v FROM narrow WHERE a IS NOT NULL",
        )
        .unwrap();
    for (table, class) in [
        ("in_line", "vector_ip_ops"),
        ("out_of_line", "vector_cosine_ops"),
        ("halves", "halfvec_l2_ops"),
        ("sparse", "sparsevec_cosine_ops"),
        ("bits", "bit_hamming_ops"),
    ] {
        let create = format!("CREATE INDEX {table}_idx ON {table} USING hnsw (v {class}) WITH (external = true)");
        expect_same(&mut scene, table, &create, &format!("{table}_idx"));
        scene.session.execute(&format!("DROP INDEX {table}_idx")).unwrap();
    }
}

#[test]
fn bytes_of_partial_expression_indexes_do_not_depend_on_workers() {
    let mut scene = Scene::new("same_partial");
    let partial = CREATE.replace("WITH (external", "WITH (external = true, m = 8) WHERE id % 3 = 0 --");
    for create in [CREATE, &partial] {
        expect_same(&mut scene, "items", create, "items_idx");
    }
    // With such a slow expression, workers read at least a third of the rows.
    scene.workers(2);
    scene.session.execute("DROP INDEX items_idx").unwrap();
    let notices = build(&mut scene.session, CREATE).unwrap();
    assert!((ROWS / 3..ROWS).contains(&read_by_workers(&notices)), "{notices:?}");
}

#[test]
fn reindex_and_concurrently_give_the_same_bytes() {
    let mut scene = Scene::new("same_reindex");
    scene.workers(0);
    scene.session.execute(CREATE).unwrap();
    let expected = scene.bytes("items_idx");
    scene.workers(2);
    let concurrently = CREATE.replace("INDEX", "INDEX CONCURRENTLY");
    for statement in ["REINDEX INDEX items_idx", "REINDEX INDEX CONCURRENTLY items_idx", &concurrently] {
        let session = &mut scene.session;
        if statement == concurrently {
            session.execute("DROP INDEX items_idx").unwrap();
        }
        let notices = build(session, statement).unwrap();
        assert_eq!(taken_part(&notices), 2, "{statement}");
        assert!(read_by_workers(&notices) > 0, "{statement}");
        assert!(scene.bytes("items_idx") == expected, "{statement}");
        let valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'items_idx'::regclass";
        let valid: String = scene.session.value(valid).unwrap();
        assert_eq!(valid, "t", "{statement}");
    }
}

/// An old snapshot sees another value of a row in the same HOT chain: such a snapshot must not use the index.
#[test]
fn workers_notice_broken_hot_chains() {
    let mut scene = Scene::new("same_hot");
    let mut old = scene.watcher();
    let session = &mut scene.session;
    // The first block, which only the backend may read, has no such chain.
    session.execute("ALTER TABLE items SET (fillfactor = 40)").unwrap();
    session.execute("VACUUM FULL items").unwrap();
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM items").unwrap();
    session.execute("UPDATE items SET v = v + v WHERE id > 3000").unwrap();
    workers_of(session, "items", 2);
    session
        .execute(
            "CREATE FUNCTION late(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN
                 IF NOT public.is_worker() THEN PERFORM pg_sleep(0.05); END IF; RETURN v; END $$",
        )
        .unwrap();
    let notices = build(session, &CREATE.replace("slow", "late")).unwrap();
    assert!(read_by_workers(&notices) > ROWS / 2, "{notices:?}");
    let broken: String =
        session.value("SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'items_idx'::regclass").unwrap();
    assert_eq!(broken, "t");
    // Rows visible only to the old snapshot are not in the index, all others are.
    let report = inspect(&CLUSTER, session, "items_idx").unwrap();
    assert!(report.contains(&format!(" {ROWS} rows of which")), "{report}");
    old.execute("COMMIT").unwrap();
}

#[test]
fn each_partition_has_its_own_number_of_workers() {
    let mut scene = Scene::new("same_partitions");
    let session = &mut scene.session;
    session
        .execute(
            "CREATE TABLE parts (id int, v vector(32)) PARTITION BY RANGE (id);
             CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (3000) WITH (parallel_workers = 2);
             CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (3000) TO (10000) WITH (parallel_workers = 0);
             INSERT INTO parts SELECT id, v FROM items; SET max_parallel_maintenance_workers = 2",
        )
        .unwrap();
    let create = CREATE.replace("ON items", "ON parts");
    let notices = build(session, &create).unwrap();
    let workers = |part: &str| {
        let of = notices.iter().find(|notice| notice.message.contains(&format!("of partition \"{part}\"")));
        of.unwrap().detail.contains("(2 parallel workers)")
    };
    assert_eq!(["parts_1", "parts_2"].map(workers), [true, false]);
}
