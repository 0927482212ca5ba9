//! `lantern_index.check(index, sample)` on indexes at rest.

use harness::{Cluster, Column, Session, copy_rows, data_set, may_damage_indexes};

use crate::{CLUSTER, database, failure, row, vectors};

/// The result of a check.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) elements: u64,
    pub(crate) rows: u64,
    pub(crate) duplicates: u64,
    pub(crate) deleted: u64,
    pub(crate) unreachable: u64,
    pub(crate) not_full: u64,
    pub(crate) errors: u64,
    pub(crate) recall: Option<f64>,
    pub(crate) advice: String,
}

pub(crate) fn check(session: &mut Session, arguments: &str) -> Checked {
    let row = row(
        session,
        &format!(
            "SELECT elements, rows, duplicates, deleted, unreachable, not_full, errors, recall, advice \
             FROM lantern_index.check({arguments})"
        ),
    );
    let number = |at: usize| row[at].as_ref().unwrap().parse().unwrap();
    let checked = Checked {
        elements: number(0),
        rows: number(1),
        duplicates: number(2),
        deleted: number(3),
        unreachable: number(4),
        not_full: number(5),
        errors: number(6),
        recall: row[7].as_ref().map(|recall| recall.parse().unwrap()),
        advice: row[8].clone().unwrap(),
    };
    println!("check({arguments}): {checked:?}");
    checked
}

/// Scans of an index that PostgreSQL has counted.
fn scans(session: &mut Session, index: &str) -> u64 {
    session.flush_statistics().unwrap();
    session.value(&format!("SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelname = '{index}'")).unwrap()
}

#[test]
fn counts_recall_and_advice_follow_the_wear_of_an_index() {
    let mut session = database("check_worn");
    let (base, _) = data_set("minilm-384").unwrap();
    copy_rows(&mut session, "t", Column::Vector, &base).unwrap();
    session.execute("DELETE FROM t WHERE id >= 3000").unwrap();
    session.execute("VACUUM t").unwrap();
    let rows = 3000;
    for (name, external) in [("stock", "false"), ("ours", "true")] {
        session
            .execute(&format!("CREATE INDEX {name} ON t USING hnsw (v vector_cosine_ops) WITH (external = {external})"))
            .unwrap();
        let fresh = check(&mut session, &format!("'{name}', 50"));
        assert_eq!((fresh.rows, fresh.elements + fresh.duplicates), (rows, rows));
        assert_eq!((fresh.deleted, fresh.errors, fresh.advice.as_str()), (0, 0, "ok"));
        assert!(fresh.recall.unwrap() > 0.9);
        if external == "true" {
            assert_eq!((fresh.unreachable, fresh.not_full), (0, 0));
        }
        // The check searches the given index, even if the planner prefers another one.
        session.execute("SET hnsw.ef_search = 1").unwrap();
        let narrow = check(&mut session, &format!("'{name}', 50"));
        assert!(narrow.recall.unwrap() < 0.2 && narrow.advice.starts_with("raise hnsw.ef_search"), "{narrow:?}");
        session.execute("RESET hnsw.ef_search").unwrap();
        // The view calls an index unused that no query has used, whatever has checked it.
        assert_eq!(scans(&mut session, name), 0);
        if name == "stock" {
            session.execute("SET enable_seqscan = off").unwrap();
            session.execute("SELECT id FROM t ORDER BY v <=> (SELECT array_agg(1) FROM generate_series(1, 384))::vector LIMIT 5").unwrap();
            session.execute("RESET enable_seqscan").unwrap();
            assert_eq!(scans(&mut session, name), 1);
        }
    }
    session.execute("DELETE FROM t WHERE id % 3 > 0; DROP INDEX stock").unwrap();
    let dead = check(&mut session, "'ours', 20");
    assert_eq!((dead.rows, dead.deleted), (rows, 0), "VACUUM has not run");
    session.execute("VACUUM t").unwrap();
    let left: u64 = session.value("SELECT count(*) FROM t").unwrap();
    let worn = check(&mut session, "'ours', 20");
    assert_eq!((worn.rows, worn.errors, worn.unreachable), (left, 0, 0));
    assert_eq!(worn.elements + worn.deleted, dead.elements);
    assert!(worn.recall.unwrap() > 0.9);
    assert!(worn.advice.starts_with("reindex: ") && worn.advice.contains("elements are deleted"), "{}", worn.advice);
    session.execute("REINDEX INDEX ours").unwrap();
    let renewed = check(&mut session, "'ours', 0");
    assert_eq!((renewed.rows, renewed.deleted, renewed.recall, renewed.advice.as_str()), (left, 0, None, "ok"));
}

#[test]
fn empty_indexes_and_duplicates_are_counted() {
    let mut session = database("check_small");
    for external in ["false", "true"] {
        session
            .execute(&format!(
                "CREATE TABLE t (i int, v vector(3)); CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = {external})"
            ))
            .unwrap();
        let empty = check(&mut session, "'t_idx'");
        assert_eq!((empty.elements, empty.rows, empty.errors, empty.recall), (0, 0, 0, None));
        assert_eq!(empty.advice, "ok");
        session.execute("INSERT INTO t SELECT i FROM generate_series(1, 9) i; REINDEX INDEX t_idx").unwrap();
        assert_eq!(check(&mut session, "'t_idx'").rows, 0, "NULLs are not indexed");
        session
            .execute(
                "INSERT INTO t SELECT i, ARRAY[i % 3, 1, 2]::vector FROM generate_series(1, 75) i; REINDEX INDEX t_idx",
            )
            .unwrap();
        let equal = check(&mut session, "'t_idx'");
        // Ten rows share an element. All rows are equally near, so that any ten count as found.
        assert_eq!((equal.elements + equal.duplicates, equal.rows, equal.errors), (75, 75, 0));
        assert!(external == "false" || equal.elements == 9);
        assert_eq!((equal.unreachable, equal.advice.as_str()), (0, "ok"));
        assert_eq!(equal.recall, Some(1.0));
        session.execute("DROP TABLE t").unwrap();
    }
}

#[test]
fn every_operator_class_is_checked() {
    let mut session = database("check_classes");
    // Indexes under cosine have no zero vectors.
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(16)) WITH (fillfactor = 40); \
             INSERT INTO t SELECT i, CASE WHEN i = 5 THEN array_fill(0, ARRAY[16])::vector ELSE {} END FROM generate_series(1, 500) i",
            vectors(16)
        ))
        .unwrap();
    session.execute("CREATE TABLE raw AS SELECT id, v::halfvec(16) AS h, v::sparsevec(16) AS s FROM t").unwrap();
    for (table, what, rows) in [
        ("t", "v vector_l2_ops", 500),
        ("t", "v vector_ip_ops", 500),
        ("t", "v vector_cosine_ops", 499),
        ("t", "v vector_l1_ops", 500),
        ("raw", "h halfvec_l2_ops", 500),
        ("raw", "h halfvec_ip_ops", 500),
        ("raw", "h halfvec_cosine_ops", 499),
        ("raw", "h halfvec_l1_ops", 500),
        ("raw", "s sparsevec_l2_ops", 500),
        ("raw", "s sparsevec_ip_ops", 500),
        ("raw", "s sparsevec_cosine_ops", 499),
        ("raw", "s sparsevec_l1_ops", 500),
        ("t", "(v::halfvec(16)) halfvec_l2_ops", 500),
        ("t", "(binary_quantize(v)::bit(16)) bit_hamming_ops", 500),
        ("t", "(binary_quantize(v)::bit(16)) bit_jaccard_ops", 500),
    ] {
        session.execute(&format!("CREATE INDEX i ON {table} USING hnsw ({what}) WITH (external = true)")).unwrap();
        let checked = check(&mut session, "'i', 30");
        assert_eq!((checked.rows, checked.errors, checked.unreachable), (rows, 0, 0), "{what}");
        assert!(checked.recall.unwrap() > 0.9, "{what}");
        session.execute("DROP INDEX i").unwrap();
    }
    session
        .execute("CREATE INDEX i ON t USING hnsw (v vector_l2_ops) WITH (external = true) WHERE id % 2 = 0")
        .unwrap();
    let partial = check(&mut session, "'i', 30");
    assert_eq!((partial.rows, partial.advice.as_str()), (250, "ok"));
    assert!(partial.recall.unwrap() > 0.95);
    // The index entry points to the root of a HOT chain, from which the newest version is found.
    session.execute("DROP INDEX i; CREATE INDEX i ON t USING hnsw (v vector_l2_ops)").unwrap();
    session.execute("UPDATE t SET id = -id").unwrap();
    let updated = check(&mut session, "'i', 30");
    assert_eq!((updated.rows, updated.errors), (500, 0));
    assert!(updated.recall.unwrap() > 0.9);
}

#[test]
fn a_check_needs_an_hnsw_index_and_the_right_to_read() {
    let mut session = database("check_refused");
    session
        .execute(
            "CREATE TABLE t (id int PRIMARY KEY, v vector(3)); INSERT INTO t SELECT i, ARRAY[i, 2, 3]::vector FROM generate_series(1, 50) i; \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops); CREATE VIEW w AS SELECT 1; \
             CREATE TABLE p (v vector(3)) PARTITION BY RANGE (v); CREATE INDEX p_idx ON p USING hnsw (v vector_l2_ops); \
             CREATE ROLE reader",
        )
        .unwrap();
    for (arguments, code, message) in [
        ("'t'", "42809", "\"t\" is not an index"),
        ("'w'", "42809", "\"w\" is not an index"),
        ("'t_pkey'", "42809", "\"t_pkey\" is not an hnsw index"),
        ("'p_idx'", "42809", "\"p_idx\" is a partitioned index"),
        ("4294967294::oid", "42P01", "relation with OID 4294967294 does not exist"),
        ("'t_idx', -1", "22023", "sample must be between 0 and 10000, not -1"),
        ("'t_idx', 10001", "22023", "sample must be between 0 and 10000, not 10001"),
    ] {
        let found = failure(&mut session, &format!("SELECT * FROM lantern_index.check({arguments})"));
        assert_eq!(found, (code.to_owned(), message.to_owned()), "{arguments}");
    }
    let mut other = CLUSTER.session("check_refused").unwrap();
    other.execute("SET ROLE reader").unwrap();
    let (code, message) = failure(&mut other, "SELECT * FROM lantern_index.check('t_idx')");
    assert_eq!((code.as_str(), message.as_str()), ("42501", "permission denied for table t"));
    session.execute("GRANT SELECT ON t TO reader").unwrap();
    let checked = check(&mut other, "'t_idx'");
    assert_eq!((checked.rows, checked.recall, checked.advice.as_str()), (50, Some(1.0), "ok"));

    session.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_idx'::regclass").unwrap();
    let invalid = check(&mut other, "'t_idx'");
    assert_eq!((invalid.recall, invalid.advice.starts_with("reindex: the index is not valid")), (None, true));

    session
        .execute("CREATE TEMP TABLE mine (v vector(3)); CREATE INDEX mine_idx ON mine USING hnsw (v vector_l2_ops)")
        .unwrap();
    assert_eq!(check(&mut session, "'mine_idx'").errors, 0);
    let oid: u32 = session.value("SELECT 'mine_idx'::regclass::oid").unwrap();
    let mut second = CLUSTER.session("check_refused").unwrap();
    assert_eq!(failure(&mut second, &format!("SELECT * FROM lantern_index.check({oid})")).0, "0A000");
}

#[test]
fn functions_of_an_index_run_as_its_owner() {
    let mut session = database("check_owner");
    session
        .execute(
            "CREATE ROLE owner_of_t; GRANT CREATE ON SCHEMA public TO owner_of_t; SET ROLE owner_of_t; \
             CREATE FUNCTION same(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS \
             $$BEGIN RAISE NOTICE 'as % in %', current_user, current_setting('search_path'); RETURN v; END$$; \
             CREATE TABLE t (v vector(3)); INSERT INTO t VALUES ('[1,2,3]'); \
             CREATE INDEX t_idx ON t USING hnsw ((same(v)::vector(3)) vector_l2_ops); RESET ROLE",
        )
        .unwrap();
    session.take_notices();
    assert_eq!(check(&mut session, "'t_idx'").recall, Some(1.0));
    let said: Vec<String> = session.take_notices().into_iter().map(|notice| notice.message).collect();
    assert!(!said.is_empty() && said.iter().all(|said| said == "as owner_of_t in pg_catalog, pg_temp"), "{said:?}");
    // The caller's own role and settings are restored, even after an error.
    let who = "SELECT current_user || ' in ' || current_setting('search_path')";
    assert_eq!(session.value::<String>(who).unwrap(), "postgres in \"$user\", public");
    session
        .execute(
            "CREATE OR REPLACE FUNCTION same(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS \
             $$BEGIN RAISE EXCEPTION 'no'; END$$",
        )
        .unwrap();
    assert_eq!(failure(&mut session, "SELECT lantern_index.check('t_idx')"), ("P0001".to_owned(), "no".to_owned()));
    assert_eq!(session.value::<String>(who).unwrap(), "postgres in \"$user\", public");
}

/// Makes an index of 60,000 rows, whose check needs more than the session's `maintenance_work_mem`.
pub fn make_larger_than_memory(session: &mut Session) {
    session
        .execute(
            "CREATE TABLE t (i int, v vector(3)); \
             INSERT INTO t SELECT i, ARRAY[i, i % 7, 2]::vector FROM generate_series(1, 60000) i; \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (m = 4, ef_construction = 8, external = true); \
             SET maintenance_work_mem = '1MB'",
        )
        .unwrap();
}

#[test]
fn memory_is_bounded() {
    let mut session = database("check_memory");
    make_larger_than_memory(&mut session);
    let error = session.execute("SELECT lantern_index.check('t_idx', 0, false)").unwrap_err();
    let found = error.server();
    println!("{error}");
    assert_eq!(found.sqlstate, "53200");
    assert_eq!(found.message, "checking the index needs more memory than maintenance_work_mem");
    // The memory in the hint is sufficient.
    let wanted = found.hint.split('"').nth(1).unwrap().to_owned();
    session.execute(&format!("SET maintenance_work_mem = '{wanted}'")).unwrap();
    let megabytes: u32 = wanted.trim_end_matches("MB").parse().unwrap();
    assert!((2..5).contains(&megabytes), "{wanted}");
    let checked = check(&mut session, "'t_idx', 0, false");
    assert_eq!((checked.rows, checked.errors, checked.unreachable), (60_000, 0, 0));
    // The sample needs memory, too.
    session.execute("RESET maintenance_work_mem; CREATE TABLE w (v vector(2000))").unwrap();
    session
        .execute(
            "INSERT INTO w SELECT array_fill(i, ARRAY[2000])::vector FROM generate_series(1, 400) i; \
             CREATE INDEX w_idx ON w USING hnsw (v vector_l2_ops) WITH (external = true); \
             SET maintenance_work_mem = '1MB'",
        )
        .unwrap();
    assert_eq!(check(&mut session, "'w_idx', 50, false").errors, 0);
    let error = session.execute("SELECT lantern_index.check('w_idx', 300, false)").unwrap_err();
    assert_eq!(error.server().sqlstate, "53200", "{error}");
    assert!(error.server().hint.contains("smaller sample"), "{error}");
}

/// Up to PostgreSQL 16, a build uses the `search_path` of its session, which may differ from that of a check by another user. Later releases
/// build with a restricted one.
#[test]
fn a_function_outside_the_search_path_fails_the_check_or_the_build() {
    let mut session = database("check_path");
    session
        .execute(
            "CREATE ROLE owner_of_path; CREATE ROLE reader_of_path; GRANT CREATE ON SCHEMA public TO owner_of_path; \
             SET ROLE owner_of_path; \
             CREATE FUNCTION inner_one(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN v; END'; \
             CREATE FUNCTION outer_one(v public.vector) RETURNS public.vector LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN inner_one(v); END'; \
             CREATE TABLE t (v vector(3)); GRANT SELECT ON t TO reader_of_path; INSERT INTO t VALUES ('[1,2,3]')",
        )
        .unwrap();
    let built = session.execute("CREATE INDEX t_idx ON t USING hnsw ((outer_one(v)::vector(3)) vector_l2_ops)");
    if CLUSTER.config().major > 16 {
        return assert_eq!(built.unwrap_err().server().sqlstate, "42883");
    }
    built.unwrap();
    assert_eq!(check(&mut session, "'t_idx'").recall, Some(1.0));
    session.execute("RESET ROLE; SET ROLE reader_of_path").unwrap();
    let error = session.execute("SELECT lantern_index.check('t_idx')").unwrap_err();
    println!("{error}");
    assert_eq!(error.server().sqlstate, "42883");
    assert!(
        error.server().hint.contains("explicit type casts. The expressions of the index ran with search_path"),
        "{error}"
    );
}

#[test]
fn damage_is_found() {
    let mut cluster = Cluster::start().unwrap();
    let mut session = cluster.database("damaged").unwrap();
    session
        .execute(&format!(
            "CREATE EXTENSION lantern_index; CREATE TABLE t (v vector(8)); \
             INSERT INTO t SELECT {} FROM generate_series(1, 300) i; CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops)",
            vectors(8)
        ))
        .unwrap();
    assert_eq!(check(&mut session, "'t_idx', 0").advice, "ok");
    let file = cluster.relation_file(&mut session, "t_idx").unwrap();
    drop(session);
    cluster.stop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    // The first tuple of the first data page is an element: its third byte says whether it is deleted.
    let pointer = u32::from_le_bytes(bytes[8192 + 24..8192 + 28].try_into().unwrap());
    bytes[8192 + (pointer & 0x7fff) as usize + 2] = 1;
    std::fs::write(&file, bytes).unwrap();
    cluster.restart().unwrap();
    let mut session = cluster.session("damaged").unwrap();
    // From PostgreSQL 18 on, clusters have checksums by default; this damage is of the kind that checksums miss.
    session.execute("SET ignore_checksum_failure = on").unwrap();
    let damaged = check(&mut session, "'t_idx', 0");
    assert!(damaged.errors > 0, "{damaged:?}");
    assert!(damaged.advice.contains("errors in its pages, the first: "), "{}", damaged.advice);
    // Pages are verified before searches, which would fail with another error.
    let sampled = check(&mut session, "'t_idx', 100");
    assert_eq!((sampled.errors, sampled.recall), (damaged.errors, None));
    let version: String = session.value("SELECT extversion FROM pg_extension WHERE extname = 'vector'").unwrap();
    let advised =
        damaged.advice.ends_with(&format!("update pgvector to 0.8.4 or later first: {version} can damage indexes"));
    assert_eq!(advised, may_damage_indexes(&mut session).unwrap(), "{}", damaged.advice);
}
