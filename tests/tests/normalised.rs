//! By cosine, elements have the values that pgvector's own index has, to the last bit.

use std::fs;

use harness::{Builder, Cluster, Session};
use pages::{PAGE_SIZE, Page, Tuple};

/// Rows and their values: usual ones, of very different sizes, below the least normal number of halfvec, near its largest, negative zeros.
const VALUES: &str = "SELECT i, ARRAY(SELECT CASE i % 5 WHEN 0 THEN random() - 0.5 WHEN 1 THEN (random() - 0.5) * 10 ^ (j % 9 - 5) \
                      WHEN 2 THEN (random() - 0.5) * 1e-6 WHEN 3 THEN (random() - 0.5) * 130000 ELSE -(j % 3) * random() END \
                      FROM generate_series(1, 83) j)::real[] AS x FROM generate_series(1, 2000) i";

/// The place of the row and the value of each element of an index.
fn elements(cluster: &Cluster, session: &mut Session, index: &str) -> Vec<(u64, Vec<u8>)> {
    let file = fs::read(cluster.relation_file(session, index).unwrap()).unwrap();
    let (pages, _) = file.as_chunks::<PAGE_SIZE>();
    let mut all = Vec::new();
    for (page, block) in pages.iter().zip(0u32..).skip(1) {
        for item in Page::parse(block, page).unwrap().items() {
            if let Tuple::Element(element) = Tuple::parse(&item.unwrap()).unwrap() {
                all.push((element.heap_tids()[0].place(), element.data().to_vec()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn normalised_values_equal_those_of_pgvector() {
    let (cluster, builder) = (Cluster::start().unwrap(), Builder::start().unwrap());
    let mut session = cluster.database("normalised").unwrap();
    builder.attach(&mut session).unwrap();
    session.execute(&format!("CREATE TABLE t AS {VALUES}")).unwrap();
    for (kind, class) in
        [("halfvec", "halfvec_cosine_ops"), ("vector", "vector_cosine_ops"), ("sparsevec", "sparsevec_cosine_ops")]
    {
        let column = match kind {
            "sparsevec" => "x::vector(83)::sparsevec(83)".to_owned(),
            _ => format!("x::{kind}(83)"),
        };
        session
            .execute(&format!(
                "CREATE TABLE {kind}s AS SELECT {column} AS v FROM t; ALTER TABLE {kind}s ALTER v TYPE {kind}(83); \
                 CREATE INDEX {kind}_ours ON {kind}s USING hnsw (v {class}) WITH (m = 4, ef_construction = 8, external = true); \
                 CREATE INDEX {kind}_own ON {kind}s USING hnsw (v {class}) WITH (m = 4, ef_construction = 8)"
            ))
            .unwrap();
        let [ours, own] = ["ours", "own"].map(|name| elements(&cluster, &mut session, &format!("{kind}_{name}")));
        assert_eq!(ours.len(), 2000, "{kind}");
        assert!(ours == own, "{kind}");
    }
}
