//! An index of more than 1 GiB, which PostgreSQL stores in several segment files.

use std::time::Instant;

use harness::{Builder, Cluster, Column, Random, Vectors, copy_rows, inspect};

/// Each row fills a block; 131,072 blocks are 1 GiB.
const ROWS: usize = 140_000;
const DIMS: usize = 2000;

/// Takes minutes, 8 GB of disk in the temporary directory and 4 GB of memory. Use an optimised builder:
///
/// ```sh
/// cargo build --release -p lantern-index
/// LANTERN_INDEX=$PWD/target/release/lantern-index \
///     cargo test -p lantern-index-tests --test durability -- --ignored --nocapture an_index_of_two_segment_files_survives_a_crash
/// ```
#[test]
#[ignore = "takes minutes and 8 GB of disk"]
fn an_index_of_two_segment_files_survives_a_crash() {
    let mut cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = cluster.database("large").unwrap();
    builder.attach(&mut session).unwrap();
    let start = Instant::now();
    copy_rows(&mut session, "items", Column::Vector, &waves()).unwrap();
    println!("{:.0} s: {ROWS} rows are stored", start.elapsed().as_secs_f64());
    session
        .execute(
            "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) \
             WITH (m = 4, ef_construction = 16, external = true)",
        )
        .unwrap();
    println!("{:.0} s: they are indexed", start.elapsed().as_secs_f64());
    let bytes: u64 = session.value("SELECT pg_relation_size('items_idx')").unwrap();
    assert!(bytes > 1 << 30, "{bytes}");

    cluster.crash().unwrap();
    let mut session = cluster.session("large").unwrap();
    println!("{:.0} s: recovered", start.elapsed().as_secs_f64());
    let report = inspect(&cluster, &mut session, "items_idx").unwrap();
    println!("{report}");
    // Rows are found whose blocks are in the first and in the second file.
    session.execute("SET enable_seqscan = off; SET hnsw.ef_search = 400").unwrap();
    let sample = "SELECT id, v FROM items WHERE id % 1400 = 7";
    let themselves = format!(
        "SELECT count(*) FROM ({sample}) q, LATERAL (SELECT id FROM items ORDER BY v <-> q.v LIMIT 1) n WHERE n.id = q.id"
    );
    session.expect_index_scan("items_idx", &themselves).unwrap();
    let found: u32 = session.value(&themselves).unwrap();
    println!("{found} of 100 rows find themselves");
    assert!(found >= 95, "{found}");
    session.execute("INSERT INTO items SELECT id + 1000000, v FROM items WHERE id < 10").unwrap();
    session.execute("DROP INDEX items_idx").unwrap();
}

/// Rows of 2000 dimensions, made of eight random numbers that are spread over 250 dimensions each.
fn waves() -> Vectors {
    let mut random = Random::new(1);
    let mut values = Vec::with_capacity(ROWS * DIMS);
    for _ in 0..ROWS {
        let numbers: [f32; 8] = std::array::from_fn(|_| random.unit());
        values.extend((0..DIMS).map(|dim| numbers[dim % 8] * (1.0 + (dim / 8) as f32 / 250.0)));
    }
    Vectors::new(DIMS, values)
}
