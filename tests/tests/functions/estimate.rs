//! `lantern_index.estimate(relation, column_name, m)`

use std::time::Duration;

use harness::{Builder, Session, proc_bytes};

use crate::{CLUSTER, database, failure, row, vectors};

/// Estimated rows, and bytes of index, of the builder's memory and on the wire.
fn estimate(session: &mut Session, arguments: &str) -> [f64; 4] {
    let backend = format!("SELECT backend_memory_bytes FROM lantern_index.estimate({arguments})");
    let backend: u64 = session.value(&backend).unwrap();
    // Batches in flight, and some bytes for each of a few thousand elements.
    assert!((4 << 20..5 << 20).contains(&backend), "{backend}");
    let sql =
        format!("SELECT rows, index_bytes, builder_memory_bytes, wire_bytes FROM lantern_index.estimate({arguments})");
    let numbers: Vec<f64> = row(session, &sql).into_iter().map(|number| number.unwrap().parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn close(what: &str, estimated: f64, real: f64, slack: f64) {
    println!("{what}: estimated {estimated}, really {real} ({:+.2} %)", 100.0 * (estimated / real - 1.0));
    assert!((estimated - real).abs() <= 0.03 * real + slack, "{what}: estimated {estimated}, really {real}");
}

#[test]
fn estimates_match_a_build() {
    let mut session = database("estimate");
    // Frame bytes are counted over all builds, so this builder is used by no other test.
    let builder = Builder::start().unwrap();
    builder.attach(&mut session).unwrap();
    for (name, column, expression, ops, m, rows) in [
        // Pages filled mainly by elements, by neighbor tuples, or by both.
        ("small", "vector(3)", vectors(3), "vector_l2_ops", 16, 10_000),
        ("middle", "vector(100)", vectors(100), "vector_cosine_ops", 8, 6000),
        ("many_links", "vector(64)", vectors(64), "vector_ip_ops", 64, 3000),
        ("wide", "vector(1536)", vectors(1536), "vector_l2_ops", 16, 500),
        ("two_on_a_page", "halfvec(1536)", vectors(1536), "halfvec_l2_ops", 16, 500),
        ("bits", "bit(1024)", format!("binary_quantize({})", vectors(1024)), "bit_hamming_ops", 16, 1000),
        ("bytes", "bit(8)", format!("binary_quantize({})", vectors(8)), "bit_hamming_ops", 4, 10_000),
        ("sparse", "sparsevec(400)", vectors(400), "sparsevec_l2_ops", 16, 1000),
        ("short_sparse", "sparsevec(4)", vectors(4), "sparsevec_l2_ops", 4, 10_000),
        ("one", "vector(3)", vectors(3), "vector_l2_ops", 16, 1),
    ] {
        // Every tenth row is NULL.
        session
            .execute(&format!(
                "CREATE TABLE {name} (i int, v {column}); \
                 INSERT INTO {name} SELECT i, CASE WHEN i % 10 > 0 THEN {expression} END FROM generate_series(1, {rows}) i; \
                 ANALYZE {name}"
            ))
            .unwrap();
        let [estimated_rows, index_bytes, memory, wire] = estimate(&mut session, &format!("'{name}', 'v', {m}"));
        let wired = |builder: &Builder| {
            ["received", "sent"].map(|way| builder.metric(&format!("lantern_index_{way}_bytes_total")).unwrap())
        };
        let before = wired(&builder);
        session
            .execute(&format!("CREATE INDEX {name}_idx ON {name} USING hnsw (v {ops}) WITH (m = {m}, ef_construction = 128, external = true)"))
            .unwrap();
        let after = wired(&builder);
        let real: f64 = session.value(&format!("SELECT pg_relation_size('{name}_idx')")).unwrap();
        let indexed: f64 = session.value(&format!("SELECT count(v) FROM {name}")).unwrap();
        close(&format!("{name}: rows"), estimated_rows, indexed, 0.0);
        close(&format!("{name}: index"), index_bytes, real, 8192.0);
        // Progress messages count towards the wire, too.
        close(&format!("{name}: wire"), wire, after[0] + after[1] - before[0] - before[1], 10_000.0);
        assert!(memory > 0.0);
    }
}

#[test]
fn rows_are_estimated_without_statistics() {
    let mut session = database("estimate_unknown");
    for (table, dims) in [("short", 384), ("long", 768)] {
        session
            .execute(&format!(
                "CREATE TABLE {table} (v vector({dims})) WITH (autovacuum_enabled = off); \
                 INSERT INTO {table} SELECT {} FROM generate_series(1, 2000) i",
                vectors(dims)
            ))
            .unwrap();
        // For a table without statistics, PostgreSQL assumes values of 32 bytes, and so 27 times as many rows.
        let [rows, ..] = estimate(&mut session, &format!("'{table}', 'v'"));
        assert!((1500.0..2800.0).contains(&rows), "{table}: {rows}");
    }
}

/// The rows that the last build announced, by its builder's log.
fn announced(builder: &Builder) -> u32 {
    builder.log().rsplit_once(" expected_rows=").unwrap().1.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn rows_of_expressions_are_estimated_without_statistics() {
    let mut session = database("estimate_expression");
    let builder = Builder::start().unwrap();
    builder.attach(&mut session).unwrap();
    for (table, column, expression) in [
        ("shorter", "vector(384)", "binary_quantize(v)::bit(384)) bit_hamming_ops"),
        ("longer", "halfvec(384)", "(v || v)::vector(768)) vector_l2_ops"),
        ("untyped", "vector", "v::vector(384)) vector_l2_ops"),
        ("numbers", "real[]", "v::vector(384)) vector_l2_ops"),
    ] {
        session
            .execute(&format!(
                "CREATE TABLE {table} (id int, v {column}) WITH (autovacuum_enabled = off); \
                 INSERT INTO {table} SELECT i, {} FROM generate_series(1, 2000) i; \
                 CREATE INDEX ON {table} USING hnsw (({expression}) WITH (external = true)",
                vectors(384)
            ))
            .unwrap();
        let rows = announced(&builder);
        assert!((1500..2800).contains(&rows), "{table}: {rows}");
    }
}

#[test]
fn memory_is_enough_and_not_far_too_much() {
    let mut session = database("estimate_memory");
    for (name, column, expression, ops, m, rows) in [
        ("short", "vector(24)", vectors(24), "vector_l2_ops", 16, 60_000),
        ("long", "halfvec(384)", vectors(384), "halfvec_cosine_ops", 16, 10_000),
        ("manhattan", "vector(100)", vectors(100), "vector_l1_ops", 16, 8000),
        ("inner_product", "vector(24)", vectors(24), "vector_ip_ops", 16, 20_000),
        ("many_links", "vector(48)", vectors(48), "vector_l2_ops", 64, 8000),
        ("bits", "bit(512)", format!("binary_quantize({})", vectors(512)), "bit_hamming_ops", 16, 10_000),
        // Every dimension has an entry, so the builder makes codes of them.
        ("filled", "sparsevec(200)", vectors(200), "sparsevec_l2_ops", 16, 10_000),
    ] {
        // A peak is one process's, so each build has its own.
        let builder = Builder::start().unwrap();
        builder.attach(&mut session).unwrap();
        session
            .execute(&format!(
                "CREATE TABLE {name} (v {column}); \
                 INSERT INTO {name} SELECT {expression} FROM generate_series(1, {rows}) i; ANALYZE {name}; \
                 CREATE INDEX ON {name} USING hnsw (v {ops}) WITH (m = {m}, ef_construction = 128, external = true)"
            ))
            .unwrap();
        let peak = proc_bytes(&format!("/proc/{}/status", builder.pid().unwrap()), "VmHWM") as f64;
        // The log has what was reserved for this builder's threads; the function assumes more threads. The program comes on top.
        builder.expect_idle(Duration::from_secs(60)).unwrap();
        let log = builder.log();
        let (_, reserved) = log.rsplit_once(" memory=").unwrap();
        let most = reserved.split(' ').next().unwrap().parse::<f64>().unwrap() + f64::from(14 << 20);
        println!("{name}: the builder took {peak}, reserved {most}");
        assert!(peak <= 1.05 * most && most <= 2.0 * peak, "{name}: the builder took {peak}, reserved {most}");
        let [_, _, estimated, _] = estimate(&mut session, &format!("'{name}', 'v', {m}"));
        assert!(peak <= estimated, "{name}: the builder took {peak}, estimated {estimated}");
    }
}

#[test]
fn impossible_estimates_are_refused_with_the_reason() {
    let mut session = database("estimate_refused");
    session
        .execute(
            "CREATE TABLE t (i int, v vector(3), free vector, wide vector(2001), bits varbit(8)); \
             CREATE VIEW w AS SELECT v FROM t; CREATE MATERIALIZED VIEW mv AS SELECT v FROM t; \
             CREATE DOMAIN d AS vector(5); CREATE TABLE of_domain (v d); \
             CREATE TABLE p (v vector(3)) PARTITION BY RANGE (v); CREATE TABLE part PARTITION OF p DEFAULT; CREATE ROLE nobody_here",
        )
        .unwrap();
    for (arguments, code, message) in [
        ("'t', 'x'", "42703", "column \"x\" of relation \"t\" does not exist"),
        ("'t', 'ctid'", "42703", "column \"ctid\" of relation \"t\" does not exist"),
        ("'t', 'i'", "0A000", "type int4 is not supported by hnsw indexes"),
        ("'t', 'bits'", "0A000", "type varbit is not supported by hnsw indexes"),
        ("'t', 'free'", "22023", "column does not have dimensions"),
        ("'t', 'wide'", "54000", "column cannot have more than 2000 dimensions for hnsw index"),
        ("'t', 'v', 1", "22023", "m must be between 2 and 100, not 1"),
        ("'t', 'v', 101", "22023", "m must be between 2 and 100, not 101"),
        ("'w', 'v'", "42809", "\"w\" is not a table or materialized view"),
        ("'p', 'v'", "42809", "\"p\" is a partitioned table"),
        ("4294967294::oid, 'v'", "42P01", "relation with OID 4294967294 does not exist"),
    ] {
        let found = failure(&mut session, &format!("SELECT * FROM lantern_index.estimate({arguments})"));
        assert_eq!(found, (code.to_owned(), message.to_owned()), "{arguments}");
    }
    for function in ["estimate", "advise"] {
        let error = session.execute(&format!("SELECT * FROM lantern_index.{function}('p', 'v')")).unwrap_err();
        assert!(error.server().hint.contains(&format!("LATERAL lantern_index.{function}(…) WHERE isleaf")), "{error}");
    }
    let hinted = "SELECT count(*) FROM pg_partition_tree('p') CROSS JOIN LATERAL lantern_index.estimate(relid, 'v') WHERE isleaf";
    assert_eq!(session.value::<u32>(hinted).unwrap(), 1);
    // An empty relation, one that was not analysed, and NULL in place of a relation.
    assert_eq!(estimate(&mut session, "'mv', 'v'")[1], 16_384.0);
    estimate(&mut session, "'of_domain', 'v'");
    assert!(session.query("SELECT * FROM lantern_index.estimate(NULL, 'v')").unwrap().is_empty());

    let mut other = CLUSTER.session("estimate_refused").unwrap();
    other.execute("SET ROLE nobody_here").unwrap();
    let (code, message) = failure(&mut other, "SELECT * FROM lantern_index.estimate('t', 'v')");
    assert_eq!((code.as_str(), message.as_str()), ("42501", "permission denied for table t"));
    session.execute("GRANT SELECT ON t TO nobody_here").unwrap();
    estimate(&mut other, "'t', 'v'");
}
