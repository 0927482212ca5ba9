//! An externally built index survives a crash: it was logged in the WAL.

use harness::{
    Builder, Cluster, Column, Metric, Recall, copy_rows, data_set, exact_neighbors, inspect, load_queries, recall,
};

#[test]
fn a_crash_right_after_the_build() {
    let mut cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = cluster.database("crash").unwrap();
    let (base, queries) = data_set("minilm-384").unwrap();
    let exact = exact_neighbors(&base, &queries, Metric::Cosine, 10);
    copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
    load_queries(&mut session, "queries", Column::Vector, &queries).unwrap();
    builder.attach(&mut session).unwrap();
    session.execute("CHECKPOINT").unwrap();
    session.execute("CREATE INDEX items_idx ON items USING hnsw (v vector_cosine_ops) WITH (external = true)").unwrap();
    let search = Recall { table: "items", queries: "queries", metric: Metric::Cosine, exact: &exact };
    let before = recall(&mut session, search, 100).unwrap();

    cluster.crash().unwrap();
    let mut session = cluster.session("crash").unwrap();
    inspect(&cluster, &mut session, "items_idx").unwrap();
    let after = recall(&mut session, search, 100).unwrap();
    assert_eq!(before.to_bits(), after.to_bits(), "{before} {after}");
    assert!(after > 0.9, "{after}");
}
