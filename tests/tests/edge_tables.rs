//! Small and unusual tables, and tables that cannot be indexed.

use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use harness::{Builder, Cluster, Session, SqlError, inspect, wait_for};
use rustix::process::{Pid, Signal, kill_process};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());
static BUILDER: LazyLock<Builder> = LazyLock::new(|| Builder::start().unwrap());

fn database(name: &str) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    BUILDER.attach(&mut session).unwrap();
    session
}

/// Indexes table `t (id int, v …)`, verifies the file, and searches for each row.
fn index_and_search(session: &mut Session, options: &str) {
    session
        .execute(&format!("CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true{options})"))
        .unwrap();
    inspect(&CLUSTER, session, "t_idx").unwrap();
    let sql = "SELECT id FROM t WHERE v IS NOT NULL \
               ORDER BY v <-> (SELECT v FROM t WHERE v IS NOT NULL LIMIT 1), id LIMIT 40";
    session.execute("SET enable_indexscan = off").unwrap();
    let mut exact = session.query(sql).unwrap();
    session.execute("SET enable_indexscan = on; SET enable_seqscan = off; SET hnsw.ef_search = 200").unwrap();
    let sql = sql.replace(", id LIMIT", " LIMIT");
    session.expect_index_scan("t_idx", &sql).unwrap();
    let mut found = session.query(&sql).unwrap();
    session.execute("RESET enable_seqscan").unwrap();
    exact.sort();
    found.sort();
    assert_eq!(found, exact);
}

/// A client process that ends with the test.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each partition sends an INFO, which a stopped client does not read.
#[test]
fn a_backend_whose_client_does_not_read_can_be_terminated() {
    let mut session = database("does_not_read");
    const CREATE: &str = "CREATE INDEX ON t USING hnsw (v vector_l2_ops)";
    session
        .execute(
            "CREATE TABLE t (id int, v vector(3)) PARTITION BY LIST (id);
             DO $$ BEGIN FOR i IN 1..600 LOOP
                 EXECUTE format('CREATE TABLE t_%s PARTITION OF t FOR VALUES IN (%s)', i, i);
             END LOOP; END $$;
             INSERT INTO t SELECT i, '[1,2,3]' FROM generate_series(1, 600) i;
             ALTER DATABASE does_not_read SET hnsw.external_index = on;
             ALTER DATABASE does_not_read SET client_min_messages = debug1",
        )
        .unwrap();
    for name in ["host", "port", "secure"] {
        let value: String = session.value(&format!("SHOW hnsw.external_index_{name}")).unwrap();
        session.execute(&format!("ALTER DATABASE does_not_read SET hnsw.external_index_{name} = '{value}'")).unwrap();
    }
    let mut psql = Command::new(CLUSTER.config().program("psql"));
    psql.args(["-X", "-U", "postgres", "-d", "does_not_read", "-c", CREATE, "-h"]).arg(CLUSTER.dir());
    let psql = Client(psql.env("PGAPPNAME", "stopped").stderr(Stdio::null()).spawn().unwrap());
    let state = |session: &mut Session| {
        session.query(
            "SELECT pid, coalesce(wait_event, '') FROM pg_stat_activity \
             WHERE application_name = 'stopped' AND state = 'active' AND query LIKE 'CREATE INDEX%'",
        )
    };
    let wait = |session: &mut Session, what: &str, is: fn(&[Vec<Option<String>>]) -> bool| {
        wait_for(what, Duration::from_secs(60), || {
            let rows = state(session)?;
            Ok(is(&rows).then_some(rows))
        })
        .unwrap()
    };
    wait(&mut session, "the client", |rows| !rows.is_empty());
    kill_process(Pid::from_child(&psql.0), Signal::STOP).unwrap();
    let rows = wait(&mut session, "a full socket", |rows| {
        rows.first().is_some_and(|row| row[1].as_deref() == Some("ClientWrite"))
    });
    let pid = rows[0][0].clone().unwrap();
    session.execute(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    wait(&mut session, "the end of the backend", <[_]>::is_empty);
    BUILDER.expect_idle(Duration::from_secs(30)).unwrap();
}

#[test]
fn nulls_are_left_out() {
    let mut session = database("nulls");
    session.execute("CREATE TABLE t (id int, v vector(3))").unwrap();
    session
        .execute(
            "INSERT INTO t SELECT i, CASE WHEN i % 3 > 0 THEN ARRAY[i, i % 7, 1]::vector END \
             FROM generate_series(1, 60) i",
        )
        .unwrap();
    index_and_search(&mut session, "");
    assert!(session.take_notices().iter().any(|notice| notice.message.starts_with("indexed 40 elements")));
}

#[test]
fn a_table_of_nulls_has_an_empty_index() {
    let mut session = database("only_nulls");
    session
        .execute("CREATE TABLE t (id int, v vector(3)); INSERT INTO t SELECT i FROM generate_series(1, 9) i")
        .unwrap();
    index_and_search(&mut session, "");
}

#[test]
fn equal_rows_share_elements() {
    let mut session = database("equal_rows");
    session
        .execute(
            "CREATE TABLE t (id int, v vector(3)); INSERT INTO t SELECT i, '[1,2,3]' FROM generate_series(1, 25) i",
        )
        .unwrap();
    index_and_search(&mut session, "");
    let report = inspect(&CLUSTER, &mut session, "t_idx").unwrap();
    assert!(report.contains(" 3 live, 0 deleted, 25 rows "), "{report}");
}

#[test]
fn one_or_three_rows_are_found() {
    for rows in [1, 3] {
        let mut session = database(&format!("rows_{rows}"));
        session.execute("CREATE TABLE t (id int, v vector(3))").unwrap();
        session
            .execute(&format!("INSERT INTO t SELECT i, ARRAY[i, 2, 3]::vector FROM generate_series(1, {rows}) i"))
            .unwrap();
        index_and_search(&mut session, "");
    }
}

#[test]
fn an_empty_table_needs_no_builder() {
    let mut session = CLUSTER.database("no_rows").unwrap();
    session.execute("SET hnsw.external_index_port = 1").unwrap();
    session.execute("CREATE TABLE t (id int, v vector(3))").unwrap();
    session.execute("CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap();
    inspect(&CLUSTER, &mut session, "t_idx").unwrap();
    session.execute("INSERT INTO t VALUES (1, '[1,2,3]'); SET enable_seqscan = off").unwrap();
    let nearest = "SELECT id FROM t ORDER BY v <-> '[1,2,4]' LIMIT 1";
    session.expect_index_scan("t_idx", nearest).unwrap();
    assert_eq!(session.value::<u32>(nearest).unwrap(), 1);
    // Empty indexes of temporary tables, and after TRUNCATE.
    session.execute("TRUNCATE t").unwrap();
    session
        .execute(
            "CREATE TEMP TABLE tt (v vector(3)) ON COMMIT DELETE ROWS; \
             CREATE INDEX ON tt USING hnsw (v vector_l2_ops) WITH (external = true); INSERT INTO tt VALUES ('[1,2,3]')",
        )
        .unwrap();
}

#[test]
fn rows_find_themselves_at_extreme_options() {
    for (m, ef_construction) in [(2, 4), (100, 200), (5, 1000)] {
        let mut session = database(&format!("m_{m}"));
        session.execute("CREATE TABLE t (id int, v vector(8)); SELECT setseed(0.5)").unwrap();
        session
            .execute(
                "INSERT INTO t SELECT i, (SELECT array_agg(random() + 0 * i * j) FROM generate_series(1, 8) j)::vector \
                 FROM generate_series(1, 500) i",
            )
            .unwrap();
        let options = format!("m = {m}, ef_construction = {ef_construction}");
        session
            .execute(&format!("CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH ({options}, external = true)"))
            .unwrap();
        inspect(&CLUSTER, &mut session, "t_idx").unwrap();
        session.execute("SET enable_seqscan = off; SET hnsw.ef_search = 200").unwrap();
        // Each row is its own nearest neighbor. With m = 2 the graph is poor, also when pgvector builds it.
        let themselves =
            "SELECT count(*) FROM t a, LATERAL (SELECT id FROM t b ORDER BY b.v <-> a.v LIMIT 1) n WHERE n.id = a.id";
        session.expect_index_scan("t_idx", themselves).unwrap();
        let found: u32 = session.value(themselves).unwrap();
        assert!(found >= if m == 2 { 450 } else { 500 }, "m = {m}: {found} of 500 rows find themselves");
    }
}

#[test]
fn rows_of_two_thousand_dimensions_are_found() {
    let mut session = database("dims_2000");
    session
        .execute(
            "CREATE TABLE t (id int, v vector(2000)); INSERT INTO t SELECT i, \
             (SELECT array_agg(sin(i * j)) FROM generate_series(1, 2000) j)::vector FROM generate_series(1, 100) i",
        )
        .unwrap();
    index_and_search(&mut session, "");
}

#[test]
fn partial_and_expression_indexes_of_every_kind_of_table_are_searched() {
    let mut session = database("kinds");
    let rows = "SELECT i, ARRAY[i, i % 7, 1]::vector(3) FROM generate_series(1, 200) i";
    for kind in ["", "UNLOGGED", "TEMP"] {
        session.execute(&format!("CREATE {kind} TABLE t (id int, v vector(3)); INSERT INTO t {rows}")).unwrap();
        session
            .execute(
                "CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true); \
                 CREATE INDEX t_part ON t USING hnsw (v vector_l2_ops) WITH (external = true) WHERE id > 100; \
                 CREATE INDEX t_expr ON t USING hnsw ((v::halfvec(3)) halfvec_l2_ops) WITH (external = true)",
            )
            .unwrap();
        session.execute("SET enable_seqscan = off").unwrap();
        for (index, rows, value) in
            [("t_idx", "t", "v"), ("t_part", "t WHERE id > 100", "v"), ("t_expr", "t", "v::halfvec(3)")]
        {
            let nearest = format!("SELECT id FROM {rows} ORDER BY {value} <-> '[150,3,1]' LIMIT 1");
            session.expect_index_scan(index, &nearest).unwrap();
            assert_eq!(session.value::<u32>(&nearest).unwrap(), 150, "{kind} {index}");
            // Only for permanent tables: a checkpoint does not write temporary and unlogged ones to their files.
            if kind.is_empty() {
                inspect(&CLUSTER, &mut session, index).unwrap();
            }
            session.execute(&format!("DROP INDEX {index}")).unwrap();
        }
        session.execute("DROP TABLE t; RESET enable_seqscan").unwrap();
    }
}

#[test]
fn impossible_indexes_fail_as_in_pgvector() {
    let mut session = CLUSTER.database("impossible").unwrap();
    // No builder listens on this port: the statements must fail before they would connect.
    session.execute("SET hnsw.external_index_port = 1").unwrap();
    session
        .execute(
            "CREATE TABLE t (v vector(3), free vector, wide vector(2001), half halfvec(4001)); \
             INSERT INTO t (v) VALUES ('[1,2,3]'), ('[3,2,1]')",
        )
        .unwrap();
    for (column, options) in [
        ("v vector_l2_ops", "m = 16, ef_construction = 31"),
        ("v vector_l2_ops", "m = 1"),
        ("v vector_l2_ops", "m = 101"),
        ("v vector_l2_ops", "ef_construction = 1001"),
        ("v vector_l2_ops", "speed = 11"),
        ("free vector_l2_ops", "m = 16"),
        ("wide vector_l2_ops", "m = 16"),
        ("half halfvec_l2_ops", "m = 16"),
    ] {
        let create = |session: &mut Session, external: &str| -> SqlError {
            session.execute(&format!("CREATE INDEX ON t USING hnsw ({column}) WITH ({options}{external})")).unwrap_err()
        };
        let (stock, ours) = (create(&mut session, ""), create(&mut session, ", external = true"));
        assert_eq!(ours.to_string(), stock.to_string(), "{column} {options}");
    }
}

#[test]
fn other_operator_classes_work() {
    let mut session = database("others");
    session.execute("CREATE TABLE t (id int, v vector(16))").unwrap();
    session
        .execute(
            "INSERT INTO t SELECT i, (SELECT array_agg(sin(i * j)) FROM generate_series(1, 16) j)::vector \
             FROM generate_series(1, 300) i",
        )
        .unwrap();
    for (column, operator, ops) in [
        ("v", "<+>", "vector_l1_ops"),
        ("v::halfvec(16)", "<+>", "halfvec_l1_ops"),
        ("binary_quantize(v)::bit(16)", "<~>", "bit_hamming_ops"),
        ("binary_quantize(v)::bit(16)", "<%>", "bit_jaccard_ops"),
        ("v::sparsevec(16)", "<->", "sparsevec_l2_ops"),
        ("v::sparsevec(16)", "<=>", "sparsevec_cosine_ops"),
    ] {
        let create = format!("CREATE INDEX t_idx ON t USING hnsw (({column}) {ops}) WITH (external = true)");
        session.execute(&create).unwrap();
        inspect(&CLUSTER, &mut session, "t_idx").unwrap();
        // Compare the distance of the tenth row found: equally near rows are interchangeable.
        let sql = format!(
            "SELECT max(d)::text FROM (SELECT {column} {operator} (SELECT {column} FROM t WHERE id = 17) AS d \
             FROM t ORDER BY 1 LIMIT 10) x"
        );
        session.execute("SET enable_indexscan = off").unwrap();
        let exact: String = session.value(&sql).unwrap();
        session.execute("SET enable_indexscan = on; SET enable_seqscan = off; SET hnsw.ef_search = 200").unwrap();
        session.expect_index_scan("t_idx", &sql).unwrap();
        assert_eq!(session.value::<String>(&sql).unwrap(), exact, "{ops}");
        session.execute("RESET enable_seqscan; DROP INDEX t_idx").unwrap();
    }
}
