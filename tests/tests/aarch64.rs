//! A native builder and an emulated one for aarch64 make the same indexes, for the native PostgreSQL or for an emulated one.

use std::fs;
use std::io::Write;
use std::path::Path;

use harness::{Builder, BuilderOptions, Cluster, Column, Session, binary, copy_rows, data_set, inspect};

const ROWS: usize = 1000;
const QUERIES: usize = 50;
const EF_SEARCH: u32 = 40;

/// Each type, with a metric and the expression that makes its values from `v`.
const INDEXES: [(&str, &str, &str, &str); 6] = [
    ("vector", "vector_l2_ops", "<->", "v"),
    ("vector", "vector_cosine_ops", "<=>", "v"),
    ("halfvec", "halfvec_ip_ops", "<#>", "v::halfvec"),
    ("bit", "bit_hamming_ops", "<~>", "binary_quantize(v)"),
    ("bit", "bit_jaccard_ops", "<%>", "binary_quantize(v)"),
    (
        "sparsevec",
        "sparsevec_cosine_ops",
        "<=>",
        "(SELECT array_agg(greatest(x, 0) ORDER BY n) FROM unnest(v::real[]) WITH ORDINALITY u (x, n))::vector::sparsevec",
    ),
];

/// With portable kernels both compute the same, bit for bit; the best kernels of each architecture round differently.
#[test]
#[ignore = "needs an emulator and a builder for it: `cargo xtask test aarch64`"]
fn builders_for_two_processors_make_the_same_indexes() {
    let cluster = Cluster::start().unwrap();
    let mut session = cluster.database("aarch64").unwrap();
    let native = binary().unwrap();
    let emulated = native.with_file_name("lantern-index-aarch64");
    let start = |program: &Path, arguments: &[&str]| {
        Builder::start_with(&BuilderOptions::serve(arguments).by(program)).unwrap()
    };
    let [portable, best] = [&["--cpu-level", "portable"][..], &[]]
        .map(|arguments| [&native, &emulated].map(|program| start(program, arguments)));
    say(&session.value::<String>("SELECT version()").unwrap());
    // `builder started … kernels="neon" …`
    let kernels = best.each_ref().map(|builder| {
        builder.log().split("kernels=\"").nth(1).map(|rest| rest.split('"').next().unwrap_or("").to_owned())
    });
    say(&format!("best kernels, native and emulated: {kernels:?}"));

    let (base, queries) = data_set("glove-100").unwrap();
    copy_rows(&mut session, "base", Column::Vector, &base.truncated(ROWS)).unwrap();
    copy_rows(&mut session, "asked", Column::Vector, &queries.truncated(QUERIES)).unwrap();
    for (column, ops, operator, values) in INDEXES {
        load(&mut session, column, operator, values);
        let [a, b] = portable.each_ref().map(|builder| build(&cluster, &mut session, builder, ops));
        let differ = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        assert!(a.len() == b.len() && differ == 0, "{ops}: {differ} of {} and {} pages differ", a.len(), b.len());
        let [native, emulated] = best.each_ref().map(|builder| {
            let pages = build(&cluster, &mut session, builder, ops);
            (pages, recall(&mut session, operator))
        });
        let differ = native.0.iter().zip(&emulated.0).filter(|(a, b)| a != b).count();
        say(&format!(
            "{ops}: {} equal pages by portable kernels; by the best ones {differ} of {} differ, recall {:.3} and {:.3}",
            a.len(),
            native.0.len(),
            native.1,
            emulated.1
        ));
        assert!(native.1 >= 0.95 && (native.1 - emulated.1).abs() <= 0.01, "{ops}: {} and {}", native.1, emulated.1);
    }
}

/// Written to stderr directly, since the test harness captures what `eprintln!` prints.
fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Builds the index and returns its pages without LSNs and checksums, which differ between builds.
fn build(cluster: &Cluster, session: &mut Session, builder: &Builder, ops: &str) -> Vec<Vec<u8>> {
    session.execute("DROP INDEX IF EXISTS items_idx").unwrap();
    builder.attach(session).unwrap();
    session.take_notices();
    session.execute(&format!("CREATE INDEX items_idx ON items USING hnsw (v {ops}) WITH (external = true)")).unwrap();
    let said: Vec<String> = session.take_notices().iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|line| line.starts_with(&format!("INFO:  indexed {ROWS} elements"))), "{said:?}");
    inspect(cluster, session, "items_idx").unwrap();
    let file = fs::read(cluster.relation_file(session, "items_idx").unwrap()).unwrap();
    file.chunks(8192).map(|page| [&[0; 10], &page[10..]].concat()).collect()
}

/// Makes the table of rows, and the table of queries with the distance of each one's tenth nearest row.
fn load(session: &mut Session, column: &str, operator: &str, values: &str) {
    session
        .execute(&format!(
            "DROP TABLE IF EXISTS items, queries; \
             CREATE TABLE items AS SELECT id, ({values})::{column}(100) AS v FROM base ORDER BY id; ANALYZE items; \
             CREATE TABLE queries AS SELECT q.v, (SELECT max(d) FROM \
             (SELECT i.v {operator} q.v AS d FROM items i ORDER BY 1 LIMIT 10) nearest) AS tenth \
             FROM (SELECT ({values})::{column}(100) AS v FROM asked) q"
        ))
        .unwrap();
}

/// recall@10; a row as near as the tenth nearest one counts as found.
fn recall(session: &mut Session, operator: &str) -> f64 {
    let sql = format!(
        "SELECT sum(hits)::float8 / {} FROM queries q CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE d <= q.tenth) AS hits \
         FROM (SELECT i.v {operator} q.v AS d FROM items i ORDER BY i.v {operator} q.v LIMIT 10) found) counted",
        10 * QUERIES
    );
    session.execute(&format!("SET enable_seqscan = off; SET hnsw.ef_search = {EF_SEARCH}")).unwrap();
    session.expect_index_scan("items_idx", &sql).unwrap();
    let recall = session.value(&sql).unwrap();
    session.execute("RESET enable_seqscan").unwrap();
    recall
}
