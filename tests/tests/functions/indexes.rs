//! The view `lantern_index.indexes`.

use std::collections::HashMap;

use harness::Session;

use crate::{CLUSTER, database, vectors};

/// Advice and reason for each index, by its name.
fn advice(session: &mut Session) -> HashMap<String, (String, String)> {
    let rows = session
        .query("SELECT index_name, advice, reason FROM lantern_index.indexes ORDER BY 1")
        .unwrap()
        .into_iter()
        .map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>());
    let found = rows.map(|row| (row[0].clone(), (row[1].clone(), row[2].clone()))).collect();
    println!("{found:?}");
    found
}

/// Waits for what other sessions report when they end.
fn wait_for_statistics(mut are_there: impl FnMut() -> anyhow::Result<bool>) {
    harness::wait_for("the statistics", std::time::Duration::from_secs(60), || Ok(are_there()?.then_some(()))).unwrap();
}

fn wait_for_dead_rows(session: &mut Session, table: &str, dead: u32) {
    let sql = format!("SELECT n_dead_tup FROM pg_stat_all_tables WHERE relname = '{table}'");
    wait_for_statistics(|| Ok(session.value::<u32>(&sql)? == dead));
}

/// A session of a new database with a table `t` of 900 rows, which autovacuum leaves alone.
fn with_rows(name: &str) -> Session {
    let mut session = database(name);
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(8)) WITH (autovacuum_enabled = off); \
             INSERT INTO t SELECT i, {} FROM generate_series(1, 900) i",
            vectors(8)
        ))
        .unwrap();
    // ANALYZE counts the rows, to which those that are reported later would be added.
    session.flush_statistics().unwrap();
    session
}

#[test]
fn the_view_shows_options_size_and_rows() {
    let mut session = database("indexes_columns");
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(8)); INSERT INTO t SELECT i, {} FROM generate_series(1, 500) i; \
             CREATE TABLE other (id int PRIMARY KEY, v vector(3)); CREATE INDEX ON other (v); \
             CREATE INDEX ours ON t USING hnsw (v vector_cosine_ops) WITH (m = 8, ef_construction = 40, external = true); \
             CREATE INDEX halves ON t USING hnsw ((v::halfvec(8)) halfvec_l2_ops) WHERE id > 100; \
             SELECT count(*) FROM (SELECT v FROM t ORDER BY v <=> '[1,2,3,4,5,6,7,8]' LIMIT 5) s; ANALYZE t",
            vectors(8)
        ))
        .unwrap();
    let rows = session
        .query(
            "SELECT table_name, index_name, column_name, opclass, type, m, ef_construction, external, valid, \
             size = pg_relation_size(index_name), rows, deleted_share \
             FROM lantern_index.indexes ORDER BY index_name::text",
        )
        .unwrap();
    let rows: Vec<Vec<&str>> =
        rows.iter().map(|row| row.iter().map(|v| v.as_deref().unwrap_or("?")).collect()).collect();
    assert_eq!(
        rows,
        [
            ["t", "halves", "(v::halfvec(8))", "halfvec_l2_ops", "halfvec(8)", "16", "64", "f", "t", "t", "400", "0"],
            ["t", "ours", "v", "vector_cosine_ops", "vector(8)", "8", "40", "t", "t", "t", "500", "0"],
        ]
    );
}

#[test]
fn each_index_has_its_advice() {
    let mut session = with_rows("indexes_advice");
    session
        .execute(
            "CREATE INDEX fine ON t USING hnsw (v vector_l2_ops) WITH (external = true); \
             CREATE TABLE worn (LIKE t) WITH (autovacuum_enabled = off); INSERT INTO worn SELECT * FROM t; \
             CREATE INDEX dying ON worn USING hnsw (v vector_l2_ops) WITH (external = true); \
             CREATE TABLE empty (v vector(3)); CREATE INDEX nothing ON empty USING hnsw (v vector_l2_ops); \
             SET enable_seqscan = off; SELECT v FROM t ORDER BY v <-> '[1,2,3,4,5,6,7,8]' LIMIT 5; \
             SELECT v FROM worn ORDER BY v <-> '[1,2,3,4,5,6,7,8]' LIMIT 5; DELETE FROM worn WHERE id % 3 > 0",
        )
        .unwrap();
    // A build that fails: CONCURRENTLY leaves an invalid index.
    session.execute("SET hnsw.external_index_port = 1").unwrap();
    session
        .execute("CREATE INDEX CONCURRENTLY left_over ON t USING hnsw (v vector_l2_ops) WITH (external = true)")
        .unwrap_err();
    session.execute("RESET hnsw.external_index_port").unwrap();
    // A session reports its statistics when it ends.
    drop(session);
    let mut session = CLUSTER.session("indexes_advice").unwrap();
    wait_for_dead_rows(&mut session, "worn", 600);
    wait_for_statistics(|| {
        let scans = "SELECT count(*) FROM pg_stat_all_indexes WHERE indexrelname IN ('fine', 'dying') AND idx_scan > 0";
        Ok(session.value::<u32>(scans)? == 2)
    });
    let found = advice(&mut session);
    assert_eq!(found["fine"], ("ok".into(), String::new()));
    assert_eq!(found["nothing"].0, "unused");
    assert_eq!(found["left_over"].0, "invalid");
    // CONCURRENTLY locks the table like this: the other session may be working on this index, whatever its progress says.
    let mut other = CLUSTER.session("indexes_advice").unwrap();
    other.execute("BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    let locked = advice(&mut session);
    assert_eq!((locked["left_over"].0.as_str(), locked["fine"].0.as_str()), ("building", "ok"));
    other.execute("ROLLBACK").unwrap();
    assert_eq!(found["dying"], ("rebuild".into(), "67 percent of its rows are dead: rebuild, then VACUUM".into()));
    session.execute("VACUUM (INDEX_CLEANUP ON) worn").unwrap();
    let found = advice(&mut session);
    assert_eq!(found["dying"], ("rebuild".into(), "about 67 percent of its elements are deleted".into()));
    let share: f64 =
        session.value("SELECT deleted_share FROM lantern_index.indexes WHERE index_name = 'dying'::regclass").unwrap();
    assert!((share - 2.0 / 3.0).abs() < 0.01, "{share}");
}

#[test]
fn dead_rows_count_where_few_elements_are_sampled() {
    let mut session = database("indexes_wide");
    // Each element takes two pages, so that the pages read have at most 24 elements, a third of them deleted.
    session
        .execute(&format!(
            "CREATE TABLE wide (id int, v vector(1990)) WITH (autovacuum_enabled = off); \
             INSERT INTO wide SELECT i, {} FROM generate_series(1, 150) i; \
             CREATE INDEX ON wide USING hnsw (v vector_l2_ops) WITH (external = true); DELETE FROM wide WHERE id % 3 = 0",
            vectors(1990)
        ))
        .unwrap();
    session.flush_statistics().unwrap();
    session.execute("VACUUM (INDEX_CLEANUP ON) wide").unwrap();
    session.execute("DELETE FROM wide WHERE id % 3 = 1").unwrap();
    session.flush_statistics().unwrap();
    wait_for_dead_rows(&mut session, "wide", 50);
    let reason = "50 percent of its rows are dead: rebuild, then VACUUM";
    assert_eq!(advice(&mut session)["wide_v_idx"], ("rebuild".into(), reason.into()));
}

#[test]
fn a_check_of_an_index_under_construction_says_nothing_of_the_finished_one() {
    let mut session = with_rows("indexes_unfinished");
    let index = "CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops)";
    let valid = |valid: bool| format!("UPDATE pg_index SET indisvalid = {valid} WHERE indexrelid = 't_idx'::regclass");
    session.execute(&format!("{index}; {}", valid(false))).unwrap();
    let said: String = session.value("SELECT lantern_index.check_and_remember('t_idx', 10)").unwrap();
    assert!(said.contains("the index is not valid"), "{said}");
    session.execute(&valid(true)).unwrap();
    assert_eq!(advice(&mut session)["t_idx"].0, "unused");
}

#[test]
fn a_check_is_remembered_until_the_index_is_made_anew() {
    let mut session = with_rows("indexes_checks");
    session
        .execute(
            "CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true); DELETE FROM t WHERE id % 3 > 0",
        )
        .unwrap();
    session.execute("VACUUM (INDEX_CLEANUP ON) t").unwrap();
    let said: String = session.value("SELECT lantern_index.check_and_remember('t_idx', 10)").unwrap();
    assert!(said.starts_with("reindex: "), "{said}");
    let remembered =
        "SELECT check_result FROM lantern_index.indexes WHERE checked_at > now() - '1 minute'::interval AND recall > 0";
    assert_eq!(session.value::<String>(remembered).unwrap(), said);
    let found = advice(&mut session);
    assert_eq!(found["t_idx"].0, "rebuild");
    assert!(found["t_idx"].1.starts_with("the last check found: "), "{found:?}");
    session.execute("REINDEX INDEX t_idx").unwrap();
    assert_eq!(
        session.value::<u32>("SELECT count(*) FROM lantern_index.indexes WHERE checked_at IS NOT NULL").unwrap(),
        0
    );
    assert_eq!(session.value::<String>("SELECT lantern_index.check_and_remember('t_idx', 10)").unwrap(), "ok");
    session.execute("CREATE INDEX u_idx ON t USING hnsw (v vector_l2_ops); DROP INDEX t_idx").unwrap();
    assert_eq!(session.value::<String>("SELECT lantern_index.check_and_remember('u_idx', 10)").unwrap(), "ok");
    assert_eq!(session.value::<u32>("SELECT count(*) FROM lantern_index.checks").unwrap(), 1);
}

#[test]
fn locked_and_unreadable_indexes_are_unknown() {
    let mut session = database("indexes_locked");
    session
        .execute(
            "CREATE ROLE stranger_of_indexes; CREATE TABLE t (v vector(3)); CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops); \
             CREATE INDEX t_half ON t USING hnsw ((v::halfvec(3)) halfvec_l2_ops); GRANT USAGE ON SCHEMA lantern_index TO stranger_of_indexes",
        )
        .unwrap();
    let mut other = CLUSTER.session("indexes_locked").unwrap();
    other.execute("BEGIN; REINDEX INDEX t_idx").unwrap();
    session.execute("SET lock_timeout = '5s'; SET search_path = ''").unwrap();
    let found = advice(&mut session);
    assert_eq!(found["public.t_idx"], ("unknown".into(), "the index is locked by another session".into()));
    other.execute("ROLLBACK; BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE").unwrap();
    let mut column = |index: &str| {
        let sql =
            format!("SELECT column_name FROM lantern_index.indexes WHERE index_name = 'public.{index}'::regclass");
        session.query(&sql).unwrap()[0][0].clone()
    };
    assert_eq!((column("t_idx").as_deref(), column("t_half")), (Some("v"), None), "PostgreSQL opens the table for it");
    other.execute("ROLLBACK").unwrap();
    assert_eq!(column("t_half").as_deref(), Some("(v::public.halfvec(3))"));
    session.execute("RESET search_path; SET ROLE stranger_of_indexes").unwrap();
    assert_eq!(advice(&mut session)["t_idx"], ("unknown".into(), "you may not read the table".into()));
    // Reading the view takes no locks to the end of the transaction.
    session.execute("RESET ROLE; BEGIN").unwrap();
    advice(&mut session);
    let locks = "SELECT count(*) FROM pg_locks WHERE relation = 't_idx'::regclass";
    assert_eq!(session.value::<u32>(locks).unwrap(), 0);
    session.execute("COMMIT").unwrap();
}

#[test]
fn unfinished_builds_and_drops_are_invalid() {
    let mut session = database("indexes_dropped");
    session.execute("CREATE TABLE t (v vector(3)); CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops)").unwrap();
    for (state, why) in [
        ("indisvalid = false", "its build did not end: no search uses it, but every insert maintains it"),
        ("indisready = false", "its build did not end: neither searches nor inserts use it"),
        (
            "indislive = false",
            "its DROP INDEX or REINDEX CONCURRENTLY did not end: neither searches nor inserts use it",
        ),
    ] {
        session.execute(&format!("UPDATE pg_index SET {state} WHERE indexrelid = 't_idx'::regclass")).unwrap();
        assert_eq!(advice(&mut session)["t_idx"], ("invalid".into(), why.into()));
    }
}

#[test]
fn a_temporary_index_of_another_session_has_a_reason() {
    let mut session = database("indexes_temporary");
    let mut other = CLUSTER.session("indexes_temporary").unwrap();
    let create = "CREATE TEMP TABLE t (v vector(3)); CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops)";
    other.execute(create).unwrap();
    assert_eq!(advice(&mut other)["t_idx"].0, "unused");
    let found = advice(&mut session);
    let why = "cannot access temporary tables of other sessions";
    assert_eq!(found.into_values().collect::<Vec<_>>(), [("unknown".into(), why.into())]);
}

#[test]
fn lost_statistics_do_not_make_all_rows_dead() {
    let mut session = with_rows("indexes_statistics");
    session.execute("CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true); ANALYZE t").unwrap();
    // As after a crash, or on a standby that was promoted.
    session.flush_statistics().unwrap();
    drop(session);
    let mut session = CLUSTER.session("indexes_statistics").unwrap();
    session.execute("SELECT pg_stat_reset()").unwrap();
    CLUSTER.session("indexes_statistics").unwrap().execute("UPDATE t SET id = -id WHERE id <= 3").unwrap();
    wait_for_dead_rows(&mut session, "t", 3);
    assert_eq!(advice(&mut session)["t_idx"].0, "unused");
    let share: f64 = session.value("SELECT dead_share FROM lantern_index.indexes").unwrap();
    assert!((share - 3.0 / 900.0).abs() < 1e-6, "{share}");
}

#[test]
fn dead_rows_outside_a_partial_index_do_not_count() {
    let mut session = with_rows("indexes_partial");
    session
        .execute(
            "CREATE INDEX whole ON t USING hnsw (v vector_l2_ops) WITH (external = true); \
             CREATE INDEX third ON t USING hnsw (v vector_l2_ops) WITH (external = true) WHERE id <= 300; ANALYZE t",
        )
        .unwrap();
    drop(session);
    let delete = |ids: &str| {
        CLUSTER.session("indexes_partial").unwrap().execute(&format!("DELETE FROM t WHERE id BETWEEN {ids}")).unwrap();
    };
    let mut session = CLUSTER.session("indexes_partial").unwrap();
    delete("401 AND 900");
    wait_for_dead_rows(&mut session, "t", 500);
    // ANALYZE counts the live rows alone.
    for statement in ["SELECT 1", "ANALYZE t"] {
        session.execute(statement).unwrap();
        let found = advice(&mut session);
        assert_eq!((found["whole"].0.as_str(), found["third"].0.as_str()), ("rebuild", "unused"), "{statement}");
    }
    // More are dead than lie outside the index.
    delete("301 AND 400");
    delete("1 AND 120");
    wait_for_dead_rows(&mut session, "t", 720);
    let why = "40 percent of its rows are dead: rebuild, then VACUUM";
    assert_eq!(advice(&mut session)["third"], ("rebuild".into(), why.into()));
}
