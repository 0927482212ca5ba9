//! Who decides how many workers there are, and what holds for all of them together.

use crate::scene::{CREATE, Scene, build, read_by_workers, taken_part};

#[test]
fn postgresql_decides() {
    let mut scene = Scene::new("decides");
    let session = &mut scene.session;
    session
        .execute("CREATE TEMP TABLE temporary AS SELECT * FROM items; CREATE TABLE large AS SELECT * FROM items")
        .unwrap();
    session
        .execute(
            "CREATE FUNCTION unsafe(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS
                 $$ BEGIN RETURN v; END $$;
             CREATE FUNCTION restricted(id int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS
                 $$ BEGIN RETURN true; END $$;
             CREATE TABLE toasted (v vector(32), fill vector(768));
             INSERT INTO toasted SELECT v, (SELECT array_agg(random() + 0 * (id + g)) FROM generate_series(1, 768) g)::vector(768) FROM items",
        )
        .unwrap();
    let plain = "CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (external = true)".to_owned();
    let of = |table: &str| plain.replace("items", table);
    let expression = plain.replace("(v ", "((unsafe(v)::vector(32)) ");
    let predicate = format!("{plain} WHERE restricted(id)");
    let rows = [
        // As small as it is, it has no workers but by choice.
        ("RESET (parallel_workers)", 2, plain.clone(), 0),
        ("SET (parallel_workers = 3)", 4, plain.clone(), 3),
        ("SET (parallel_workers = 3)", 1, plain.clone(), 1),
        ("SET (parallel_workers = 3)", 0, plain.clone(), 0),
        ("SET (parallel_workers = 3)", 2, expression, 0),
        ("SET (parallel_workers = 3)", 2, predicate, 0),
        ("RESET (parallel_workers)", 2, of("temporary"), 0),
        // 6000 values of 3 kB, in another file: three times 8 MB.
        ("RESET (parallel_workers)", 4, of("toasted").replace("(v ", "(fill "), 2),
    ];
    for (option, most, create, expected) in rows {
        session.execute(&format!("ALTER TABLE items {option}; SET max_parallel_maintenance_workers = {most}")).unwrap();
        let notices = build(session, &create).unwrap();
        assert_eq!(taken_part(&notices), expected, "{option}, at most {most}: {create}");
    }
    // Workers do not need memory to sort in.
    session
        .execute(
            "SET maintenance_work_mem = '32MB'; ALTER TABLE items SET (parallel_workers = 2);
             SET max_parallel_maintenance_workers = 2",
        )
        .unwrap();
    assert_eq!(taken_part(&build(session, &plain).unwrap()), 2);
    assert_eq!(session.value::<String>("SHOW maintenance_work_mem").unwrap(), "32MB");
    assert_eq!(session.value::<String>("SHOW min_parallel_table_scan_size").unwrap(), "8MB");
}

/// `max_rate` is for all rows, whoever reads them.
#[test]
fn workers_keep_to_the_rate() {
    let mut scene = Scene::new("rate");
    scene.workers(2);
    let session = &mut scene.session;
    session.execute("SET hnsw.external_index_max_rate = '256kB'").unwrap();
    let notices = build(session, CREATE).unwrap();
    assert!(read_by_workers(&notices) > 0);
    let last = notices.iter().find(|notice| notice.message.starts_with("indexed ")).unwrap();
    let scan = last.detail.split_once("Scan ").unwrap().1;
    let scan: f64 = scan.split_once(" s").unwrap().0.parse().unwrap();
    // 6000 rows of 134 bytes; a batch and a tenth of a second's worth are free.
    let (bytes, rate, batch) = (6000.0 * 134.0, f64::from(256 << 10), f64::from(256 << 10));
    assert!(scan > (bytes - batch) / rate - 0.3, "{scan} s");
}
