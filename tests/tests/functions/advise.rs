//! `lantern_index.advise(…)`: advised indexes have the advised recall and size, and unsuitable input is refused.

use std::thread;
use std::time::Duration;

use harness::{
    Builder, BuilderOptions, Column, Metric, Session, copy_rows, data_set, exact_neighbors, synthetic, wait_for,
};

use crate::check_external::{older_builder, wait_for_lock};
use crate::{BUILDER, CLUSTER, database, failure, vectors};

/// A row of the result.
#[derive(Debug)]
struct Advised {
    statement: String,
    settings: String,
    query: String,
    recall: f64,
    visited: f64,
    index_bytes: f64,
    cached_bytes: f64,
}

fn advise(session: &mut Session, arguments: &str) -> Vec<Advised> {
    let sql = format!(
        "SELECT statement, settings, query, recall, visited, index_bytes, cached_bytes FROM lantern_index.advise({arguments})"
    );
    let rows = session.query(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |column: &Option<String>| column.clone().unwrap();
    let number = |column: &Option<String>| text(column).parse().unwrap();
    let advised = rows.iter().map(|row| Advised {
        statement: text(&row[0]),
        settings: text(&row[1]),
        query: text(&row[2]),
        recall: number(&row[3]),
        visited: number(&row[4]),
        index_bytes: number(&row[5]),
        cached_bytes: number(&row[6]),
    });
    let advised: Vec<Advised> = advised.collect();
    advised.iter().for_each(|choice| println!("{choice:?}"));
    advised
}

/// Builds the advised index and searches it for all queries of table `q`. Returns the recall, and the size of the index in bytes.
fn carry_out(session: &mut Session, choice: &Advised, exact: &[Vec<u32>]) -> (f64, f64) {
    session.execute(&format!("{}; {}", choice.statement, choice.settings)).unwrap();
    session.execute("SET enable_seqscan = off").unwrap();
    let index = "SELECT indexrelid FROM pg_index WHERE indrelid = 't'::regclass";
    let bytes = session.value(&format!("SELECT pg_relation_size(({index}))")).unwrap();
    let search = choice.query.replace("$1", "q.v").replace("SELECT *", "SELECT t.*").replacen(
        "SELECT t.* FROM (",
        "SELECT id FROM (",
        1,
    );
    let sql = format!("SELECT q.id, n.id FROM q CROSS JOIN LATERAL ({search}) n");
    let plan = session.plan(&sql).unwrap();
    assert!(plan.contains("Index Scan using"), "{sql}:\n{plan}");
    let rows = session.query(&sql).unwrap();
    let number = |column: &Option<String>| column.as_ref().unwrap().parse::<usize>().unwrap();
    let hits = rows.iter().filter(|row| exact[number(&row[0])].contains(&(number(&row[1]) as u32))).count();
    let name: String = session.value(&format!("SELECT ({index})::regclass")).unwrap();
    session.execute(&format!("DROP INDEX {name}; RESET enable_seqscan; RESET hnsw.ef_search")).unwrap();
    (hits as f64 / exact.iter().map(Vec::len).sum::<usize>() as f64, bytes)
}

fn carry_out_all(session: &mut Session, choices: &[Advised], exact: &[Vec<u32>], target: f64, slack: f64) {
    for choice in choices {
        let (recall, bytes) = carry_out(session, choice, exact);
        println!("{}: recall {recall:.3}, said {:.3}; {bytes} bytes", choice.statement, choice.recall);
        assert!(recall > target - slack, "{}: recall {recall}, target {target}", choice.statement);
        assert!((bytes / choice.index_bytes - 1.0).abs() < 0.05, "{}: {bytes} bytes", choice.statement);
        assert!(choice.cached_bytes > 0.0 && choice.cached_bytes <= choice.index_bytes && choice.visited > 10.0);
    }
}

#[test]
fn every_choice_reaches_the_target() {
    let mut session = database("advise_target");
    let (base, queries) = data_set("minilm-384").unwrap();
    let queries = queries.truncated(400);
    copy_rows(&mut session, "t", Column::Vector, &base).unwrap();
    copy_rows(&mut session, "q", Column::Vector, &queries).unwrap();
    let exact = exact_neighbors(&base, &queries, Metric::Cosine, 10);
    let target = 0.95;
    let given = advise(
        &mut session,
        "'t', 'v', 'vector_cosine_ops', target_recall => 0.95, queries => 'SELECT v FROM q -- all of them'",
    );
    let types = ["vector_cosine_ops", "halfvec_cosine_ops", "bit_hamming_ops"];
    for class in types {
        assert!(given.iter().any(|choice| choice.statement.contains(class)), "{class}");
    }
    carry_out_all(&mut session, &given, &exact, target, 0.03);
    // Without queries, rows of the table are held out.
    let held_out = advise(&mut session, "'t', 'v'");
    carry_out_all(&mut session, &held_out[..1], &exact, target, 0.03);
}

#[test]
fn advice_from_a_sample_holds_for_the_table() {
    let mut session = database("advise_part");
    let (base, queries) = synthetic(24_000, 400, 48, 7);
    copy_rows(&mut session, "t", Column::Vector, &base).unwrap();
    copy_rows(&mut session, "q", Column::Vector, &queries).unwrap();
    session.execute("ANALYZE t").unwrap();
    let exact = exact_neighbors(&base, &queries, Metric::L2, 10);
    let given = advise(&mut session, "'t', 'v', 'l2', 0.9, max_rows => 6000");
    carry_out_all(&mut session, &given[..1], &exact, 0.9, 0.03);
    // A table that has never been analysed.
    session.execute("CREATE TABLE u AS TABLE t").unwrap();
    let same = advise(&mut session, "'u', 'v', 'l2', 0.9, max_rows => 6000");
    assert!(
        (same[0].index_bytes / given[0].index_bytes - 1.0).abs() < 0.5,
        "{} {}",
        same[0].index_bytes,
        given[0].index_bytes
    );
}

#[test]
fn rows_added_since_analyze_are_counted() {
    let mut session = database("advise_grown");
    for (table, before) in [("empty", 0), ("small", 1000)] {
        let rows =
            |rows: u32| format!("INSERT INTO {table} SELECT i, {} FROM generate_series(1, {rows}) i", vectors(16));
        session.execute(&format!("CREATE TABLE {table} (id int, v vector(16)); {}", rows(before))).unwrap();
        session.execute(&format!("ANALYZE {table}")).unwrap();
        session.execute(&rows(20_000 - before)).unwrap();
        let given = advise(&mut session, &format!("'{table}', 'v', 'l2', 0.8, max_rows => 3000"));
        // The size of about 20,000 rows: an element of 16 dimensions takes 280 bytes. The estimated rows per page are a
        // little low, since the last page was half full.
        assert!(given.iter().any(|choice| choice.index_bytes > 4e6), "{table}: {given:?}");
    }
}

#[test]
fn values_set_since_analyze_are_counted() {
    let mut session = database("advise_filled");
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(16)) WITH (autovacuum_enabled = off); \
             INSERT INTO t SELECT i, NULL FROM generate_series(1, 20000) i; ANALYZE t; \
             UPDATE t SET v = {} FROM generate_series(1, 20000) i WHERE i = id",
            vectors(16)
        ))
        .unwrap();
    let given = advise(&mut session, "'t', 'v', 'l2', 0.8, max_rows => 3000");
    assert!(given.iter().any(|choice| (4e6..8e6).contains(&choice.index_bytes)), "{given:?}");
}

#[test]
fn samples_have_enough_rows() {
    let mut session = database("advise_sample");
    for thousands in [3, 7, 12, 20] {
        session.execute("DROP TABLE IF EXISTS t").unwrap();
        small(&mut session, 1000 * thousands);
        // The other column has the name that an alias could have.
        let queries = "queries => 'SELECT v AS first, v FROM t LIMIT 50'";
        assert!(!advise(&mut session, &format!("'t', 'v', 'l2', 0.8, max_rows => 1000, {queries}")).is_empty());
    }
}

#[test]
fn without_other_types_the_index_has_the_type_of_the_column() {
    let mut session = database("advise_own_type");
    small(&mut session, 1500);
    // As in pgvector 0.6.
    session
        .execute(
            "CREATE TABLE bits AS SELECT binary_quantize(v)::bit(16) AS b FROM t; ALTER TABLE bits ALTER b TYPE bit(16)",
        )
        .unwrap();
    for class in ["halfvec_l2_ops", "vector_l1_ops", "bit_hamming_ops"] {
        let class = format!("OPERATOR CLASS {class} USING hnsw");
        session.execute(&format!("ALTER EXTENSION vector DROP {class}; DROP {class}")).unwrap();
    }
    let given = advise(&mut session, "'t', 'v', target_recall => 0.9");
    assert!(!given.is_empty());
    assert!(given.iter().all(|choice| choice.statement.contains("hnsw (v vector_cosine_ops)")), "{given:?}");
    for (call, class) in [
        ("advise('t', 'v', 'l1')", "vector_l1_ops"),
        ("advise('bits', 'b')", "bit_hamming_ops"),
        ("estimate('bits', 'b', 16)", "bit_hamming_ops"),
    ] {
        let message = format!("operator class \"{class}\" does not exist for access method \"hnsw\"");
        assert_eq!(
            failure(&mut session, &format!("SELECT * FROM lantern_index.{call}")),
            ("42704".to_owned(), message)
        );
    }
}

#[test]
fn advised_statements_run_for_every_type_and_quoted_names() {
    let mut session = database("advise_types");
    session
        .execute(&format!(
            "CREATE SCHEMA \"my tables\"; CREATE TABLE \"my tables\".\"T\" AS SELECT i AS id, {0} AS \"V\", \
             {0}::halfvec(16) AS h, {0}::sparsevec(16) AS s, binary_quantize({0})::bit(16) AS b \
             FROM generate_series(1, 1500) i; \
             ALTER TABLE \"my tables\".\"T\" ALTER \"V\" TYPE vector(16), ALTER h TYPE halfvec(16), \
             ALTER s TYPE sparsevec(16), ALTER b TYPE bit(16)",
            vectors(16)
        ))
        .unwrap();
    for (column, class) in [
        ("V", "vector_l2_ops"),
        ("V", "ip"),
        ("V", "vector_l1_ops"),
        ("h", "halfvec_cosine_ops"),
        ("s", "sparsevec_l2_ops"),
        ("b", "bit_hamming_ops"),
        ("b", "bit_jaccard_ops"),
    ] {
        let given = advise(&mut session, &format!("'\"my tables\".\"T\"', '{column}', '{class}', 0.8, k => 5"));
        for choice in &given {
            session.execute(&choice.statement).unwrap();
            session.execute(&format!("{}; PREPARE p AS {}; DEALLOCATE p", choice.settings, choice.query)).unwrap();
        }
        assert!(!given.is_empty());
    }
}

#[test]
fn a_sparse_value_with_too_many_entries_is_named() {
    let mut session = database("advise_entries");
    session
        .execute(
            "CREATE TABLE t (v sparsevec(2000)); \
             INSERT INTO t SELECT format('{%s:1,%s:2}/2000', i, i + 1)::sparsevec FROM generate_series(1, 1500) i; \
             INSERT INTO t SELECT format('{%s}/2000', string_agg(j || ':1', ','))::sparsevec FROM generate_series(1, 1001) j",
        )
        .unwrap();
    let (sqlstate, message) = failure(&mut session, "SELECT * FROM lantern_index.advise('t', 'v')");
    assert_eq!(sqlstate, "54000");
    assert_eq!(message, "sparsevec cannot have more than 1000 non-zero elements for hnsw index");
}

#[test]
fn advised_statements_name_the_schema_of_pgvector() {
    let mut session = CLUSTER.database("advise_path").unwrap();
    session
        .execute(&format!(
            "CREATE EXTENSION lantern_index; CREATE TABLE public.t AS \
             SELECT i AS id, {}::vector(8) AS v, (i * 7919 % 65536)::bit(16) AS b FROM generate_series(1, 1200) i; \
             ALTER TABLE t ALTER v TYPE vector(8), ALTER b TYPE bit(16); \
             CREATE SCHEMA ext; ALTER EXTENSION vector SET SCHEMA ext",
            vectors(8)
        ))
        .unwrap();
    BUILDER.attach(&mut session).unwrap();
    // PostgreSQL's `bit` is in the search path, pgvector's operators for it are not.
    for column in ["v", "b"] {
        for Advised { statement, settings, query, .. } in
            advise(&mut session, &format!("'t', '{column}', target_recall => 0.9"))
        {
            session.execute(&format!("{statement}; {settings}; PREPARE p AS {query}; DEALLOCATE p")).unwrap();
        }
    }
}

#[test]
fn advice_comes_through_a_router() {
    for mode in ["relay", "redirect"] {
        let mut session = database(&format!("advise_{mode}"));
        small(&mut session, 1500);
        let router = Builder::start_with(&BuilderOptions::router(&["--mode", mode])).unwrap();
        router.attach(&mut session).unwrap();
        assert!(!advise(&mut session, "'t', 'v', target_recall => 0.9").is_empty());
        router.expect_idle(Duration::from_secs(60)).unwrap();
    }
}

/// An alert tells operators of failed builds.
#[test]
fn a_table_that_is_too_small_is_no_failed_build() {
    let mut session = database("advise_no_failure");
    small(&mut session, 500);
    for options in [BuilderOptions::serve(&[]), BuilderOptions::router(&["--mode", "relay"])] {
        let daemon = Builder::start_with(&options).unwrap();
        daemon.attach(&mut session).unwrap();
        assert_eq!(failure(&mut session, "SELECT lantern_index.advise('t', 'v')").0, "55000");
        daemon.expect_idle(Duration::from_secs(60)).unwrap();
        let ended = |outcome| daemon.metric(&format!("lantern_index_builds_total{{outcome=\"{outcome}\"}}")).unwrap();
        assert!(ended("failed") < 0.5 && ended("refused") > 0.5);
    }
}

/// Makes a table of `rows` rows of 16 dimensions.
fn small(session: &mut Session, rows: u32) {
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(16)); INSERT INTO t SELECT i, {} FROM generate_series(1, {rows}) i",
            vectors(16)
        ))
        .unwrap();
}

#[test]
fn a_role_that_does_not_see_all_rows_is_told() {
    let mut session = database("advise_row_security");
    small(&mut session, 3000);
    session
        .execute(
            "CREATE ROLE tenant_of_advice; GRANT USAGE ON SCHEMA lantern_index TO tenant_of_advice; \
             GRANT SELECT ON t TO tenant_of_advice; ALTER TABLE t ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY own ON t USING (id <= 1500)",
        )
        .unwrap();
    for (role, is_told) in [("tenant_of_advice", true), ("postgres", false)] {
        session.execute(&format!("SET ROLE {role}")).unwrap();
        session.take_notices();
        advise(&mut session, "'t', 'v', 'vector_l2_ops', 0.8");
        let notices = session.take_notices();
        let told = notices.iter().any(|notice| notice.message.starts_with("row-level security hides rows"));
        assert_eq!(told, is_told, "{role}: {notices:?}");
    }
}

#[test]
fn a_builder_that_waits_for_a_slow_query_is_not_left_in_silence() {
    let mut session = database("advise_slowly");
    small(&mut session, 1500);
    session
        .execute(
            "CREATE FUNCTION slow(id int) RETURNS boolean LANGUAGE plpgsql AS \
                 $$ BEGIN IF id = 1400 THEN PERFORM pg_sleep(5); END IF; RETURN true; END $$; \
             CREATE ROLE slow_advice; GRANT USAGE ON SCHEMA lantern_index TO slow_advice; GRANT SELECT ON t TO slow_advice; \
             ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON t USING (slow(id))",
        )
        .unwrap();
    let builder = Builder::start_with(&BuilderOptions::serve(&["--idle-timeout", "2s"])).unwrap();
    builder.attach(&mut session).unwrap();
    session.execute("SET ROLE slow_advice").unwrap();
    let advice = "'t', 'v', 'vector_l2_ops', 0.8";
    assert!(!advise(&mut session, advice).is_empty());
    // Neither a cancel nor a lost builder waits for the query.
    let pid = session.pid();
    let mut builder = builder;
    for code in ["57014", "08006"] {
        session = thread::scope(|scope| {
            let asking = scope.spawn(move || {
                let failed = failure(&mut session, &format!("SELECT * FROM lantern_index.advise({advice})"));
                (failed.0, session)
            });
            wait_for("the builder to have the request", Duration::from_secs(60), || {
                Ok((builder.metric("lantern_index_build_active")? == 1.0).then_some(()))
            })
            .unwrap();
            match code {
                "57014" => {
                    let mut other = CLUSTER.session("advise_slowly").unwrap();
                    other.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
                }
                _ => builder.kill(),
            }
            let (failed, session) = asking.join().unwrap();
            assert_eq!(failed, code);
            session
        });
        assert_eq!(session.value::<i32>("SELECT 1").unwrap(), 1);
        if code == "57014" {
            builder.expect_idle(Duration::from_secs(60)).unwrap();
        }
    }
}

#[test]
fn unanswerable_questions_are_refused_with_the_reason() {
    let mut session = database("advise_refused");
    small(&mut session, 1500);
    session
        .execute(
            "CREATE TABLE empty (v vector(3)); CREATE TABLE nulls AS SELECT NULL::vector(3) AS v FROM generate_series(1, 9); \
             ALTER TABLE nulls ALTER v TYPE vector(3); \
             CREATE TABLE few AS SELECT ARRAY[i, 1, 2]::vector(3) AS v FROM generate_series(1, 500) i; \
             ALTER TABLE few ALTER v TYPE vector(3); \
             CREATE TABLE zeros AS SELECT '[0,0,0]'::vector(3) AS v FROM generate_series(1, 2000) i; \
             ALTER TABLE zeros ALTER v TYPE vector(3); \
             CREATE VIEW w AS SELECT v FROM t; CREATE TABLE bits AS SELECT i::bit(12) AS b FROM generate_series(1, 2000) i; \
             ALTER TABLE bits ALTER b TYPE bit(12); CREATE TABLE free (v vector, i int); CREATE ROLE nobody_advised; \
             CREATE DOMAIN short AS vector(16); CREATE TABLE of_domain AS SELECT v::short AS v FROM t",
        )
        .unwrap();
    let few = "external index build failed: 500 rows with values are too few for advice: at least 1000 are needed";
    let zeros = "external index build failed: 0 rows with values are too few for advice: at least 1000 are needed";
    for (arguments, code, message) in [
        ("'t', 'x'", "42703", "column \"x\" of relation \"t\" does not exist"),
        ("'t', 'id'", "0A000", "type int4 is not supported by hnsw indexes"),
        ("'free', 'v'", "22023", "column does not have dimensions"),
        ("'of_domain', 'v'", "0A000", "hnsw indexes are not for columns of a domain"),
        ("'w', 'v'", "42809", "\"w\" is not a table or materialized view"),
        ("'t', 'v', 'hamming'", "42704", "hnsw indexes of type vector do not support operator class \"hamming\""),
        ("'t', 'v', target_recall => 1", "22023", "target_recall must be between 0.5 and 0.999, not 1"),
        ("'t', 'v', target_recall => 'NaN'", "22023", "target_recall must be between 0.5 and 0.999, not NaN"),
        ("'t', 'v', k => 0", "22023", "k must be between 1 and 1000, not 0"),
        ("'t', 'v', max_rows => 10", "22023", "max_rows must be between 1000 and 10000000, not 10"),
        ("'empty', 'v'", "55000", "column v of \"empty\" has no values to try indexes on"),
        ("'nulls', 'v'", "55000", "column v of \"nulls\" has no values to try indexes on"),
        ("'few', 'v'", "55000", few),
        ("'zeros', 'v'", "55000", zeros),
        ("'t', 'v', queries => 'SELEC'", "42601", "syntax error at or near \")\""),
        ("'t', 'v', queries => 'DELETE FROM t RETURNING v'", "42601", "syntax error at or near \"FROM\""),
        ("'t', 'v', queries => 'SELECT v FROM t WHERE false'", "22023", "queries return no values"),
        ("'t', 'v', queries => 'SELECT ''[1,2]''::vector'", "22000", "expected 16 dimensions, not 2"),
        (
            "'bits', 'b', queries => 'SELECT ''1010''::bit(4)'",
            "22026",
            "bit string length 4 does not match type bit(12)",
        ),
        ("'t', 'v', queries => 'SELECT 7'", "42846", "cannot cast type integer to vector"),
    ] {
        let found = failure(&mut session, &format!("SELECT * FROM lantern_index.advise({arguments})"));
        assert_eq!(found, (code.to_owned(), message.to_owned()), "{arguments}");
    }
    assert!(session.query("SELECT * FROM lantern_index.advise(NULL, 'v')").unwrap().is_empty());
    session.execute("SET hnsw.external_index_port = 1").unwrap();
    assert_eq!(failure(&mut session, "SELECT * FROM lantern_index.advise('t', 'v')").0, "08001");
    session
        .execute(&format!("SET hnsw.external_index_secure = off; SET hnsw.external_index_port = {}", older_builder()))
        .unwrap();
    let older = failure(&mut session, "SELECT * FROM lantern_index.advise('t', 'v')");
    assert_eq!(older, ("0A000".into(), "external indexing server gives no advice".into()));

    let mut other = CLUSTER.session("advise_refused").unwrap();
    BUILDER.attach(&mut other).unwrap();
    other.execute("SET ROLE nobody_advised").unwrap();
    let (code, message) = failure(&mut other, "SELECT * FROM lantern_index.advise('t', 'v')");
    assert_eq!((code.as_str(), message.as_str()), ("42501", "permission denied for table t"));
    session.execute("GRANT SELECT ON t TO nobody_advised").unwrap();
    assert!(!advise(&mut other, "'t', 'v', target_recall => 0.9").is_empty());
}

/// Makes a table whose advice takes a while.
fn wide(session: &mut Session) {
    let (base, _) = synthetic(20_000, 1, 128, 3);
    copy_rows(session, "t", Column::Vector, &base).unwrap();
}

#[test]
fn a_cancelled_advice_and_a_lost_builder_leave_nothing() {
    let mut session = database("advise_ended");
    wide(&mut session);
    let mut builder = Builder::start().unwrap();
    builder.attach(&mut session).unwrap();
    let pid = session.pid();
    let trying = |builder: &Builder| {
        wait_for("graphs to be tried", Duration::from_secs(60), || {
            let (_, status) = builder.get("/status")?;
            Ok(status.contains("\"phase\":\"graph\"").then_some(()))
        })
        .unwrap();
    };
    let ask = |mut session: Session| {
        let failed = failure(&mut session, "SELECT * FROM lantern_index.advise('t', 'v')");
        (failed.0, session)
    };
    let session = thread::scope(|scope| {
        let asking = scope.spawn(move || ask(session));
        trying(&builder);
        let mut other = CLUSTER.session("advise_ended").unwrap();
        // Advice blocks no writer.
        other.execute("INSERT INTO t SELECT 0, v FROM t LIMIT 1").unwrap();
        other.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
        let (code, session) = asking.join().unwrap();
        assert_eq!(code, "57014");
        session
    });
    builder.expect_idle(Duration::from_secs(60)).unwrap();
    thread::scope(|scope| {
        let asking = scope.spawn(move || ask(session));
        trying(&builder);
        builder.kill();
        let (code, mut session) = asking.join().unwrap();
        assert_eq!(code, "08006");
        assert_eq!(session.value::<i32>("SELECT 1").unwrap(), 1);
    });
}

#[test]
fn altering_or_dropping_the_table_waits_for_advice() {
    let mut session = database("advise_dropped");
    session
        .execute(&format!("CREATE TABLE t AS SELECT i AS id, {} AS v FROM generate_series(1, 6000) i", vectors(64)))
        .unwrap();
    session.execute("ALTER TABLE t ALTER v TYPE vector(64)").unwrap();
    let [mut watcher, mut changer] = [(); 2].map(|()| CLUSTER.session("advise_dropped").unwrap());
    thread::scope(|scope| {
        let pid = session.pid();
        let session = &mut session;
        let asking = scope.spawn(move || advise(session, "'t', 'v', 'l2', 0.9"));
        let shown = format!(
            "SELECT count(*) FROM pg_stat_progress_create_index WHERE pid = {pid} AND relid = 't'::regclass \
             AND phase = 'building index: builder tries indexes' AND tuples_total > 0"
        );
        let trying = || Ok((watcher.value::<u32>(&shown)? > 0).then_some(()));
        wait_for("progress of the builder", Duration::from_secs(60), trying).unwrap();
        let pid = changer.pid();
        let changing = scope.spawn(move || changer.execute("ALTER TABLE t ALTER v TYPE halfvec(64); DROP TABLE t"));
        wait_for_lock(&mut watcher, pid);
        // Both wait, and the answer is about the table as it was.
        assert!(!asking.join().unwrap().is_empty());
        changing.join().unwrap().unwrap();
    });
    assert_eq!(failure(&mut session, "SELECT * FROM lantern_index.advise('t', 'v')").0, "42P01");
    // Dropped before its oid is looked up.
    assert_eq!(failure(&mut session, "SELECT * FROM lantern_index.advise(1, 'v')").0, "42P01");
    let shown = format!("SELECT count(*) FROM pg_stat_progress_create_index WHERE pid = {}", session.pid());
    assert_eq!(session.value::<u32>(&shown).unwrap(), 0);
}
