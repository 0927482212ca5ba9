//! `lantern-index advise` of a table, in a PostgreSQL that has only pgvector.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use harness::{Cluster, Column, Metric, PgConfig, Session, binary, copy_rows, exact_neighbors, synthetic, wait_for};
use serde_json::Value;

static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::start_with(PgConfig::require().unwrap(), "max_connections = 20").unwrap());

/// The values of row `i`; no two rows are similar.
const VALUES: &str = "(SELECT array_agg(sin(i * j * 0.37) + cos(i * 0.11 + j)) FROM generate_series(1, 16) j)";

fn command(cluster: &Cluster, dsn: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary().unwrap());
    command.arg("advise").arg(format!("host={} {dsn}", cluster.dir().display())).args(arguments);
    command.env("HOME", "/nowhere").env_remove("PGPASSWORD").env_remove("PGPASSFILE").stdin(Stdio::null());
    command
}

/// Exit code, stdout and stderr.
fn outcome(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let outcome = (output.status.code().unwrap(), text(output.stdout), text(output.stderr));
    println!("{outcome:?}");
    outcome
}

fn advise(database: &str, arguments: &[&str]) -> (i32, String, String) {
    outcome(command(&CLUSTER, &format!("user=postgres dbname={database}"), arguments))
}

fn json(database: &str, arguments: &[&str]) -> Value {
    let (code, out, err) = advise(database, &[arguments, &["--json"]].concat());
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

/// Builds each advised index and searches it for a value.
fn carry_out(session: &mut Session, answer: &Value, value: &str) {
    let choices = answer["choices"].as_array().unwrap();
    for choice in choices {
        let [statement, settings, query] = ["statement", "settings", "query"].map(|key| choice[key].as_str().unwrap());
        session.execute(&format!("{statement}; {settings}; SET enable_seqscan = off; PREPARE p AS {query}")).unwrap();
        let execute = format!("EXECUTE p('{value}')");
        let plan = session.plan(&execute).unwrap();
        assert!(plan.contains("Index Scan using"), "{statement}\n{query}\n{plan}");
        assert!(!session.query(&execute).unwrap().is_empty(), "{query}");
        session.execute("DEALLOCATE p; RESET enable_seqscan").unwrap();
    }
    assert!(!choices.is_empty());
}

#[test]
fn advice_holds_for_the_index() {
    let mut session = CLUSTER.database("recall").unwrap();
    let (base, queries) = synthetic(8000, 200, 32, 9);
    copy_rows(&mut session, "t", Column::Vector, &base).unwrap();
    copy_rows(&mut session, "q", Column::Vector, &queries).unwrap();
    let plot = CLUSTER.dir().join("plot.svg");
    let arguments =
        ["--table", "t", "--column", "v", "--metric", "l2", "--target-recall", "0.9", "--queries", "SELECT v FROM q;"];
    let answer = json("recall", &[&arguments[..], &["--plot", &plot.display().to_string()]].concat());
    assert_eq!((answer["rows"].as_u64(), answer["queries"].as_u64()), (Some(8000), Some(200)));
    assert!(fs::read_to_string(plot).unwrap().contains("8000 rows of vector(32) by l2"));
    let choice = answer["choices"].as_array().unwrap().iter().find(|choice| choice["type"] == "vector").unwrap();
    let text = |key: &str| choice[key].as_str().unwrap();
    session.execute(&format!("{}; {}; SET enable_seqscan = off", text("statement"), text("settings"))).unwrap();
    let search = text("query").replace("SELECT *", "SELECT t.id").replace("$1", "q.v");
    let search = format!("SELECT q.id, n.id FROM q CROSS JOIN LATERAL ({search}) n");
    let plan = session.plan(&search).unwrap();
    assert!(plan.contains("Index Scan using"), "{plan}");
    let found = session.query(&search).unwrap();
    let exact = exact_neighbors(&base, &queries, Metric::L2, 10);
    let number = |text: &Option<String>| text.as_ref().unwrap().parse::<usize>().unwrap();
    let hits = found.iter().filter(|row| exact[number(&row[0])].contains(&(number(&row[1]) as u32))).count();
    let recall = hits as f64 / 2000.0;
    assert!(recall > 0.87, "{recall}: {choice}");
    let (code, text, _) = advise("recall", &arguments);
    assert!(code == 0 && text.starts_with("8000 rows of vector(32), by graphs of up to 8000"), "{text}");
    assert!(text.contains("\nCREATE INDEX ON public.t USING hnsw ("), "{text}");
}

#[test]
fn advised_statements_run_for_every_type_and_quoted_names() {
    let mut session = CLUSTER.database("types").unwrap();
    session
        .execute(&format!(
            "CREATE DOMAIN short AS vector(16); CREATE SCHEMA \"My tables\"; \
             CREATE TABLE \"My tables\".\"T\" AS SELECT i AS id, {VALUES}::vector(16) AS \"V\", \
             {VALUES}::halfvec(16) AS h, {VALUES}::vector(16)::sparsevec(16) AS s, \
             binary_quantize({VALUES}::vector(16))::bit(16) AS b, {VALUES}::vector(16)::short AS d \
             FROM generate_series(1, 1500) i; \
             ALTER TABLE \"My tables\".\"T\" ALTER \"V\" TYPE vector(16), ALTER h TYPE halfvec(16), \
             ALTER s TYPE sparsevec(16), ALTER b TYPE bit(16); \
             CREATE MATERIALIZED VIEW m AS SELECT id, \"V\" FROM \"My tables\".\"T\"; \
             CREATE TABLE r AS SELECT b FROM \"My tables\".\"T\" LIMIT 1; CREATE SCHEMA ext; ALTER EXTENSION vector SET SCHEMA ext"
        ))
        .unwrap();
    for (column, metric, more) in [
        ("V", "l2", &["--queries", "SELECT \"V\", id FROM \"My tables\".\"T\" LIMIT 20 -- all"][..]),
        ("V", "l1", &[]),
        ("h", "cosine", &["--queries", "SELECT \"V\" FROM m"]),
        ("s", "ip", &[]),
        ("b", "jaccard", &["-k", "1"]),
        ("b", "hamming", &["--queries", "SELECT '0101010101010101'"]),
    ] {
        let arguments =
            ["--table", "\"My tables\".\"T\"", "--column", column, "--metric", metric, "--target-recall", "0.8"];
        let answer = json("types", &[&arguments[..], more].concat());
        assert_eq!(answer["rows"].as_u64(), Some(1500));
        let value: String =
            session.value(&format!("SELECT \"{column}\"::text FROM \"My tables\".\"T\" LIMIT 1")).unwrap();
        carry_out(&mut session, &answer, &value);
    }
    let (code, _, said) = advise("types", &["--table", "\"My tables\".\"T\"", "--column", "d"]);
    assert!(code == 64 && said.contains("is of type short; hnsw indexes are for vector"), "{code} {said}");
    // By default: the only column with vectors, cosine, and the database of the environment.
    let output = Command::new(binary().unwrap())
        .args(["advise", "--table", "m", "--json"])
        .env("PGHOST", CLUSTER.dir())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "types")
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["choices"][0]["statement"].as_str().unwrap().contains("_cosine_ops"), "{answer}");
    let bits = json("types", &["--table", "\"My tables\".\"T\"", "--column", "b"]);
    assert!(bits["choices"][0]["statement"].as_str().unwrap().contains("ext.bit_hamming_ops"), "{bits}");
}

#[test]
fn a_role_that_does_not_see_all_rows_is_told() {
    let mut session = CLUSTER.database("row_security").unwrap();
    session
        .execute(&format!(
            "CREATE TABLE t AS SELECT i AS id, {VALUES}::vector(16) AS v FROM generate_series(1, 2400) i; \
             ALTER TABLE t ALTER v TYPE vector(16); CREATE ROLE tenant LOGIN; GRANT SELECT ON t TO tenant; \
             ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON t USING (id <= 1200)"
        ))
        .unwrap();
    for (role, is_told) in [("tenant", true), ("postgres", false)] {
        let arguments = ["--table", "t", "--target-recall", "0.8"];
        let (code, _, said) = outcome(command(&CLUSTER, &format!("user={role} dbname=row_security"), &arguments));
        assert_eq!((code, said.contains("row-level security hides rows")), (0, is_told), "{role}: {said}");
    }
}

#[test]
fn functions_of_others_are_not_called() {
    let mut session = CLUSTER.database("path").unwrap();
    // PostgreSQL prefers functions whose parameter types match exactly, wherever they are in the search path.
    let harmful = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called with the rights of the reader'; END $$";
    session
        .execute(&format!(
            "CREATE TABLE t AS SELECT i AS id, {VALUES}::vector(16) AS v FROM generate_series(1, 1200) i; \
             ALTER TABLE t ALTER v TYPE vector(16); \
             CREATE FUNCTION quote_ident(name) RETURNS text {harmful}; \
             CREATE FUNCTION same(oid, regclass) RETURNS bool {harmful}; \
             CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = same); \
             CREATE FUNCTION above(real, int) RETURNS bool {harmful}; \
             CREATE OPERATOR > (LEFTARG = real, RIGHTARG = int, FUNCTION = above); \
             ALTER DATABASE path SET search_path = public, pg_catalog"
        ))
        .unwrap();
    let answer = json("path", &["--table", "t", "--target-recall", "0.8"]);
    assert_eq!(answer["rows"].as_u64(), Some(1200));
}

#[test]
fn rows_added_since_analyze_are_counted_and_sampled() {
    let mut session = CLUSTER.database("grown").unwrap();
    for (table, before) in [("never", None), ("empty", Some(0)), ("small", Some(3000))] {
        session
            .execute(&format!("CREATE TABLE {table} (id int, v vector(16)) WITH (autovacuum_enabled = off)"))
            .unwrap();
        // Every third row has no vector.
        let insert = |from: u32, to: u32| {
            format!(
                "INSERT INTO {table} SELECT i, CASE WHEN i % 3 > 0 THEN {VALUES}::vector END FROM generate_series({from}, {to}) i"
            )
        };
        if let Some(before) = before {
            session.execute(&insert(1, before)).unwrap();
            session.execute(&format!("ANALYZE {table}")).unwrap();
        }
        session.execute(&insert(before.unwrap_or(0) + 1, 30_000)).unwrap();
        let answer = json("grown", &["--table", table, "--metric", "l2", "--target-recall", "0.8", "--max-rows", "2k"]);
        let (rows, tried) = (answer["rows"].as_f64().unwrap(), answer["tried"].as_u64().unwrap());
        assert!((rows / 20_000.0 - 1.0).abs() < 0.15, "{table}: {rows} rows");
        assert!((1000..=2700).contains(&tried), "{table}: {tried} of 3000 rows, less those held out");
    }
}

#[test]
fn unanswerable_questions_are_refused_with_the_reason() {
    let mut session = CLUSTER.database("refused").unwrap();
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(16), b bit(12)); \
             INSERT INTO t SELECT i, {VALUES}, i::bit(12) FROM generate_series(1, 1500) i; \
             CREATE TABLE one (id int, v vector(16)); CREATE TABLE plain (id int); \
             CREATE TABLE nulls AS SELECT NULL::vector(3) AS v FROM generate_series(1, 9); \
             ALTER TABLE nulls ALTER v TYPE vector(3); CREATE TABLE free (v vector); CREATE SEQUENCE s; CREATE VIEW w AS SELECT v FROM t; \
             CREATE TABLE parts (id int, v vector(3)) PARTITION BY HASH (id); CREATE ROLE stranger LOGIN"
        ))
        .unwrap();
    for (arguments, code, text) in [
        (&["--table", "nowhere.t"][..], 64, "there is no table nowhere.t in database \"refused\""),
        (&["--table", "t"], 64, "public.t has several columns with vectors, v, b: choose one with --column"),
        (&["--table", "t", "--column", "x"], 64, "public.t has no column \"x\"; its columns are id, v, b"),
        (&["--table", "t", "--column", "id"], 64, "column \"id\" of public.t is of type int4"),
        (&["--table", "plain"], 64, "public.plain has no column of type vector, halfvec, bit or sparsevec"),
        (&["--table", "free"], 64, "column \"v\" of public.free does not have dimensions"),
        (&["--table", "w"], 64, "public.w is neither a table nor a materialized view"),
        (&["--table", "parts"], 64, "public.parts is a partitioned table"),
        (&["--table", "one"], 64, "column v of public.one has no values to try indexes on"),
        (&["--table", "nulls"], 64, "column v of public.nulls has no values to try indexes on"),
        (&["--table", "t", "--column", "v", "-k", "100"], 64, "1500 rows with values are too few for advice"),
        (
            &["--table", "t", "--column", "v", "--metric", "hamming"],
            64,
            "hnsw indexes of type vector do not support --metric hamming",
        ),
        (
            &["--table", "t", "--column", "b", "--metric", "l2"],
            64,
            "hnsw indexes of type bit do not support --metric l2",
        ),
        (&["--table", "t", "--column", "v", "--queries", "SELEC"], 64, "--queries: database \"refused\": syntax error"),
        (&["--table", "t", "--column", "v", "--queries", "DELETE FROM t RETURNING v"], 64, "syntax error"),
        (
            &["--table", "t", "--column", "v", "--queries", "SELECT v FROM t WHERE id < 0"],
            64,
            "--queries return no values",
        ),
        (
            &["--table", "t", "--column", "v", "--queries", "SELECT '[1,2]'::vector"],
            64,
            "expected 16 dimensions, not 2",
        ),
        (&["--table", "t", "--column", "v", "--queries", "SELECT 7"], 64, "cannot cast type integer to vector"),
        (&["--table", "t", "--column", "b", "--queries", "SELECT '1010'::bit(4)"], 64, "does not match type bit(12)"),
        (&["--table", "t", "--column", "v", "--queries", "SELECT v FROM t, nextval('s')"], 64, "read-only transaction"),
        (&["--table", "t", "--max-rows", "10"], 64, "must be between 1000 and 10000000"),
    ] {
        let outcome = advise("refused", arguments);
        assert!(outcome.0 == code && outcome.2.contains(text), "{arguments:?}: {outcome:?}");
    }
    let stranger =
        |dsn: &str| outcome(command(&CLUSTER, &format!("user=stranger {dsn}"), &["--table", "t", "--column", "v"]));
    let outcome = stranger("dbname=refused");
    assert!(outcome.0 == 1 && outcome.2.contains("database \"refused\": permission denied for table t"), "{outcome:?}");
    session.execute("GRANT SELECT (v) ON t TO stranger").unwrap();
    assert_eq!(stranger("dbname=refused").0, 0);
    let outcome = stranger("dbname=none_such");
    assert!(outcome.0 == 1 && outcome.2.contains("cannot connect to"), "{outcome:?}");
    let outcome = stranger("dbname='refused");
    assert!(outcome.0 == 64 && outcome.2.contains("connection string: a quote is not closed"), "{outcome:?}");
    let output = Command::new(binary().unwrap()).args(["advise", "postgresql://host/db"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(64) && said.contains("Name it with --table"), "{said}");
}

#[test]
fn a_missing_or_wrong_password_is_reported() {
    let cluster = Cluster::start_with(PgConfig::require().unwrap(), "").unwrap();
    let mut session = cluster.database("closed").unwrap();
    session
        .execute(&format!(
            "CREATE ROLE asked LOGIN PASSWORD 'open sesame'; CREATE TABLE t AS SELECT {VALUES}::vector(16) AS v \
             FROM generate_series(1, 1200) i; ALTER TABLE t ALTER v TYPE vector(16); GRANT SELECT ON t TO asked"
        ))
        .unwrap();
    let rules = cluster.data().join("pg_hba.conf");
    let usual = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("local all asked scram-sha-256\n{usual}")).unwrap();
    cluster.reload().unwrap();
    let run = |more: &str| {
        let dsn = format!("user=asked dbname=closed {more}");
        outcome(command(&cluster, &dsn, &["--table", "t", "--target-recall", "0.8"]))
    };
    let refused = run("");
    assert!(refused.0 == 1 && refused.2.contains("the server asks for a password: PGPASSWORD"), "{refused:?}");
    let wrong = run("password=sesame");
    assert!(wrong.0 == 1 && wrong.2.contains("password authentication failed"), "{wrong:?}");
    assert_eq!(run("password='open sesame'").0, 0);
    let dsn = "user=asked dbname=closed password='open sesame'";
    assert_eq!(outcome(command(&cluster, dsn, &["--table", "t", "--queries", "SELEC"])).0, 64);
    assert_eq!(outcome(command(&cluster, dsn, &["--table", "pg_class"])).0, 64);
    // Each run has ended its transaction, once.
    let log = cluster.log();
    assert!(!log.contains("open transaction") && !log.contains("no transaction in progress"), "{log}");
}

#[test]
fn a_terminated_session_is_reported() {
    let mut session = CLUSTER.database("ended").unwrap();
    session
        .execute(&format!("CREATE TABLE t AS SELECT {VALUES}::vector(16) AS v FROM generate_series(1, 1200) i"))
        .unwrap();
    session.execute("ALTER TABLE t ALTER v TYPE vector(16)").unwrap();
    let asking = thread::spawn(|| {
        advise("ended", &["--table", "t", "--queries", "SELECT v FROM t, LATERAL (SELECT pg_sleep(20)) AS slow"])
    });
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'lantern-index advise' AND datname = 'ended' AND query LIKE 'FETCH%'";
    wait_for("the queries", Duration::from_secs(60), || Ok((session.value::<u32>(end)? > 0).then_some(()))).unwrap();
    let outcome = asking.join().unwrap();
    assert!(outcome.0 == 1 && outcome.2.contains("database \"ended\": "), "{outcome:?}");
}
