//! What other users can do to the extension's objects, and see by them.

use crate::{CLUSTER, database, failure};

const TABLE: &str = "CREATE TABLE t (v vector(3)); \
                     INSERT INTO t SELECT ARRAY[i, i % 7, 1]::vector FROM generate_series(1, 100) i";

#[test]
fn a_schema_of_another_role_is_refused() {
    let mut session = CLUSTER.database("rights_schema").unwrap();
    session
        .execute(
            "CREATE ROLE squatter; GRANT CREATE ON DATABASE rights_schema TO squatter; SET ROLE squatter; \
             CREATE SCHEMA lantern_index; RESET ROLE",
        )
        .unwrap();
    let (code, message) = failure(&mut session, "CREATE EXTENSION lantern_index");
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("42501", "schema lantern_index belongs to role \"squatter\", which is no superuser")
    );
    session.execute("DROP SCHEMA lantern_index; CREATE EXTENSION lantern_index").unwrap();
}

#[test]
fn checks_are_seen_by_those_who_may_read_the_table() {
    let mut session = database("rights_checks");
    session.execute(TABLE).unwrap();
    session
        .execute(
            "CREATE INDEX t_v ON t USING hnsw (v vector_l2_ops); SELECT lantern_index.check_and_remember('t_v'); \
             CREATE ROLE curious; GRANT TEMPORARY ON DATABASE rights_checks TO curious; SET ROLE curious; \
             CREATE FUNCTION pg_temp.tell(float8) RETURNS bool LANGUAGE plpgsql STRICT COST 0.0001 \
                 AS $$BEGIN RAISE NOTICE 'told %', $1; RETURN true; END$$; \
             SET enable_nestloop = off; SET enable_mergejoin = off; SET enable_hashjoin = on",
        )
        .unwrap();
    session.take_notices();
    session.execute("SELECT index_name FROM lantern_index.indexes WHERE pg_temp.tell(recall)").unwrap();
    let told: Vec<String> = session.take_notices().into_iter().map(|notice| notice.message).collect();
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_check_does_not_wait_for_another_one() {
    let mut session = database("rights_waiting");
    session.execute(TABLE).unwrap();
    session
        .execute(
            "CREATE INDEX a ON t USING hnsw (v vector_l2_ops); CREATE INDEX b ON t USING hnsw (v vector_l2_ops); \
             INSERT INTO lantern_index.checks VALUES (1, 1, now(), 0, 0, 0, 0, 0, NULL, 'of an index that is gone')",
        )
        .unwrap();
    let mut other = CLUSTER.session("rights_waiting").unwrap();
    session.execute("BEGIN; SELECT lantern_index.check_and_remember('a')").unwrap();
    other.execute("SET lock_timeout = '2s'; SELECT lantern_index.check_and_remember('b')").unwrap();
    session.execute("COMMIT").unwrap();
    let left: String = session
        .value("SELECT string_agg(index::regclass::text, ' ' ORDER BY index) FROM lantern_index.checks")
        .unwrap();
    assert_eq!(left, "a b");
}
