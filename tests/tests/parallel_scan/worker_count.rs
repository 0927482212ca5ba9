//! PostgreSQL decides on the number of workers, except that maintenance_work_mem does not lower it.

use crate::scene::{Scene, build, taken_part};

#[test]
fn postgresql_decides_how_many_workers_take_part() {
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
        // The table is too small to get workers by default.
        ("RESET (parallel_workers)", 2, plain.clone(), 0),
        ("SET (parallel_workers = 3)", 4, plain.clone(), 3),
        ("SET (parallel_workers = 3)", 1, plain.clone(), 1),
        ("SET (parallel_workers = 3)", 0, plain.clone(), 0),
        ("SET (parallel_workers = 3)", 2, expression, 0),
        ("SET (parallel_workers = 3)", 2, predicate, 0),
        ("RESET (parallel_workers)", 2, of("temporary"), 0),
        // 6000 values of 3 kB in the TOAST table: three times min_parallel_table_scan_size, 8 MB.
        ("RESET (parallel_workers)", 4, of("toasted").replace("(v ", "(fill "), 2),
    ];
    for (option, most, create, expected) in rows {
        session.execute(&format!("ALTER TABLE items {option}; SET max_parallel_maintenance_workers = {most}")).unwrap();
        let notices = build(session, &create).unwrap();
        assert_eq!(taken_part(&notices), expected, "{option}, at most {most}: {create}");
    }
    // Workers need no memory for sorting.
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
