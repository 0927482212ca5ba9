//! A build while an old snapshot is in use: rows that are dead for all other sessions must be in the index.

use std::time::Duration;

use harness::{Session, inspect, wait_for};

use super::{BUILDER, CLUSTER};

const READ: &str = "SELECT id FROM items ORDER BY v <-> '[0,0,0]' LIMIT 1000";
const BY_INDEX: &str = "SET enable_seqscan = off; SET enable_sort = off; SET hnsw.ef_search = 1000";

/// A table of 300 rows, and a session with a snapshot of its present state.
fn scene(database: &str, options: &str, external: bool) -> (Session, Session) {
    let mut session = CLUSTER.database(database).unwrap();
    BUILDER.attach(&mut session).unwrap();
    session
        .execute(&format!(
            "SET hnsw.external_index = {external}; \
             CREATE TABLE items (id int, note int, v vector(3)) WITH ({options}); \
             INSERT INTO items SELECT i, 0, ARRAY[i, i % 7, 1]::vector FROM generate_series(1, 300) i"
        ))
        .unwrap();
    let mut old = CLUSTER.session(database).unwrap();
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    old.query("SELECT count(*) FROM items").unwrap();
    (session, old)
}

/// Makes the session prefer or avoid the index; returns whether the plan uses it.
fn uses_index(session: &mut Session, by_index: bool) -> bool {
    let settings =
        if by_index { BY_INDEX } else { "SET enable_indexscan = off; RESET enable_seqscan; RESET enable_sort" };
    session.execute(settings).unwrap();
    session.plan(READ).unwrap().contains("Index Scan using items_v")
}

fn ids(session: &mut Session, by_index: bool) -> Vec<u32> {
    assert_eq!(uses_index(session, by_index), by_index);
    let mut ids: Vec<u32> =
        session.query(READ).unwrap().into_iter().flatten().map(|id| id.unwrap().parse().unwrap()).collect();
    session.execute("RESET enable_indexscan; RESET enable_seqscan; RESET enable_sort").unwrap();
    ids.sort_unstable();
    ids
}

#[test]
fn dead_rows_are_found_by_those_who_see_them() {
    for external in [true, false] {
        let database = format!("dead_rows_{external}");
        // Full pages, so that a new version goes to another page and is no HOT update.
        let (mut session, mut old) = scene(&database, "fillfactor = 100", external);
        session.execute("DELETE FROM items WHERE id % 3 = 0").unwrap();
        session.execute("CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops)").unwrap();
        let indexed = session.take_notices().iter().any(|notice| notice.message == "indexed 300 elements");
        assert_eq!(indexed, external, "the dead rows are indexed too");
        let everything: Vec<u32> = (1..=300).collect();
        let alive: Vec<u32> = (1..=300).filter(|id| id % 3 != 0).collect();
        assert_eq!(ids(&mut old, true), everything);
        assert_eq!(ids(&mut session, true), alive);
        old.execute("COMMIT").unwrap();
        assert_eq!(ids(&mut old, true), alive);
        session.execute("VACUUM items").unwrap();
        inspect(&CLUSTER, &mut session, "items_v").unwrap();
        assert_eq!(ids(&mut session, true), alive);
    }
}

#[test]
fn rows_updated_in_place_are_indexed_by_their_new_values() {
    for external in [true, false] {
        let database = format!("in_place_{external}");
        let (mut session, mut old) = scene(&database, "fillfactor = 40", external);
        // The indexed column changes as well, so that the versions of a HOT chain have different values.
        session.execute("UPDATE items SET note = 1 WHERE id % 2 = 0").unwrap();
        session.execute("UPDATE items SET v = ARRAY[id, 100, 2]::vector WHERE id % 5 = 0").unwrap();
        session.execute("DELETE FROM items WHERE id % 7 = 0").unwrap();
        session.execute("CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops)").unwrap();
        assert_eq!(session.take_notices().iter().any(|notice| notice.message.starts_with("indexed ")), external);
        // PostgreSQL itself keeps transactions with old snapshots from using the index.
        let fenced: String =
            session.value("SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'items_v'::regclass").unwrap();
        assert_eq!(fenced, "t");
        assert_eq!(ids(&mut old, false).len(), 300);
        old.execute("COMMIT").unwrap();

        let alive: Vec<u32> = (1..=300).filter(|id| id % 7 != 0).collect();
        // Short transactions of other tests delay it too.
        wait_for("the index to be used", Duration::from_secs(60), || Ok(uses_index(&mut session, true).then_some(())))
            .unwrap();
        assert_eq!(ids(&mut session, true), alive);
        // The new values are indexed, not the old ones.
        session.execute(BY_INDEX).unwrap();
        let nearest: u32 = session.value("SELECT id FROM items ORDER BY v <-> '[200,100,2]' LIMIT 1").unwrap();
        assert_eq!(nearest, 200);
        session.execute("VACUUM items").unwrap();
        inspect(&CLUSTER, &mut session, "items_v").unwrap();
        assert_eq!(ids(&mut session, true), alive);
    }
}
