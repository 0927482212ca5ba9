//! Indexes built externally and in the database give equally good results, for every type and metric.

use std::sync::LazyLock;

use half::f16;
use harness::{
    Builder, Cluster, Column, Metric, Recall, Session, Vectors, copy_rows, data_set, exact_neighbors, inspect, recall,
};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());
static BUILDER: LazyLock<Builder> = LazyLock::new(|| Builder::start().unwrap());

const EF_SEARCH: [u32; 3] = [40, 100, 200];

/// For GloVe, a hard set: with default options, the recall of two stock builds differs by nearly the tolerance of these tests.
const DENSE: &str = "m = 24, ef_construction = 128";
const DEFAULTS: &str = "m = 16, ef_construction = 64";

#[test]
fn vector_l2() {
    let (base, queries) = data_set("glove-100").unwrap();
    compare("vector_l2", Column::Vector, Metric::L2, DENSE, &base, &queries);
}

#[test]
fn vector_inner_product() {
    let (base, queries) = data_set("minilm-384").unwrap();
    compare("vector_ip", Column::Vector, Metric::InnerProduct, DEFAULTS, &of_several_lengths(base), &queries);
}

#[test]
fn vector_cosine() {
    let (base, queries) = data_set("glove-100").unwrap();
    compare("vector_cosine", Column::Vector, Metric::Cosine, DENSE, &with_zeros(of_several_lengths(base)), &queries);
}

#[test]
fn halfvec_l2() {
    let (base, queries) = data_set("minilm-384").unwrap();
    compare("halfvec_l2", Column::Halfvec, Metric::L2, DEFAULTS, &base, &queries);
}

#[test]
fn halfvec_inner_product() {
    let (base, queries) = data_set("minilm-384").unwrap();
    compare("halfvec_ip", Column::Halfvec, Metric::InnerProduct, DEFAULTS, &of_several_lengths(base), &queries);
}

#[test]
fn halfvec_cosine() {
    let (base, queries) = data_set("glove-100").unwrap();
    compare("halfvec_cosine", Column::Halfvec, Metric::Cosine, DENSE, &with_zeros(of_several_lengths(base)), &queries);
}

/// Scales rows by 1, 1.25, … 2, so that inner product and cosine order them differently.
fn of_several_lengths(vectors: Vectors) -> Vectors {
    vectors.changed(|row, values| {
        let factor = 1.0 + (row % 5) as f32 / 4.0;
        values.iter_mut().for_each(|value| *value = f16::from_f32(*value * factor).to_f32());
    })
}

/// Every 500th row is a zero vector, which has no direction.
fn with_zeros(vectors: Vectors) -> Vectors {
    vectors.changed(|row, values| {
        if row % 500 == 0 {
            values.fill(0.0);
        }
    })
}

fn compare(database: &str, column: Column, metric: Metric, options: &str, base: &Vectors, queries: &Vectors) {
    let mut session = CLUSTER.database(database).unwrap();
    let queries = &queries.clone().truncated(300);
    copy_rows(&mut session, "items", column, base).unwrap();
    copy_rows(&mut session, "queries", column, queries).unwrap();
    let exact = exact_neighbors(base, queries, metric, 10);
    let search = Recall { table: "items", queries: "queries", metric, exact: &exact };
    let create =
        format!("CREATE INDEX items_idx ON items USING hnsw (v {})", metric.operator_class(column.value_type()));

    session.execute(&format!("{create} WITH ({options})")).unwrap();
    let inside = EF_SEARCH.map(|ef| recall(&mut session, search, ef).unwrap());
    session.execute("DROP INDEX items_idx").unwrap();

    BUILDER.attach(&mut session).unwrap();
    session.take_notices();
    session.execute(&format!("{create} WITH ({options}, external = true)")).unwrap();
    let zeros = (0..base.rows()).filter(|&row| base.row(row).iter().all(|&value| value == 0.0)).count();
    expect_lines(&mut session, if metric == Metric::Cosine { base.rows() - zeros } else { base.rows() });
    let outside = EF_SEARCH.map(|ef| recall(&mut session, search, ef).unwrap());
    println!("{database}: in the database {inside:.4?}, external {outside:.4?}");
    for ((ef, inside), outside) in EF_SEARCH.iter().zip(inside).zip(outside) {
        // pgvector draws other levels each time.
        assert!(outside >= inside - 0.02, "ef_search {ef}: {outside:.4}, in the database {inside:.4}");
    }

    inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    // It is an ordinary index: its access method is pgvector's, and the planner knows its size.
    let method: String = session
        .value("SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname = 'items_idx'")
        .unwrap();
    assert_eq!(method, "hnsw");
    let planned: u32 = session.value("SELECT reltuples::int FROM pg_class WHERE relname = 'items_idx'").unwrap();
    assert!(planned as usize >= base.rows() - zeros, "{planned} rows in pg_class");
}

/// Expects the INFO lines of an external build.
fn expect_lines(session: &mut Session, elements: usize) {
    let said: Vec<String> = session.take_notices().iter().map(ToString::to_string).collect();
    let port = BUILDER.address().port();
    for line in [
        format!("INFO:  connecting to external indexing server on 127.0.0.1:{port}"),
        "INFO:  successfully connected to external indexing server".to_owned(),
        format!("INFO:  indexed {elements} elements"),
    ] {
        assert!(said.iter().any(|said| said.starts_with(&line)), "{line:?} is not among {said:#?}");
    }
}
