//! Rows and pages through a router that relays, against the same without one. It measures, so it wants the machine for itself, and a
//! release build: `LANTERN_INDEX=target/release/lantern-index cargo test -p lantern-index-tests --test router -- --ignored --nocapture`.

use harness::{Builder, BuilderOptions, Column, Session, Vectors, copy_rows};

use crate::scene::CLUSTER;

const ROWS: usize = 50_000;
const DIMS: usize = 384;
const ROUNDS: usize = 5;
/// Few neighbors: it is about bytes, not graphs.
const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) \
                      WITH (m = 4, ef_construction = 16, external = true)";

/// Seconds of the scan, and of the pages, of one build.
fn build(session: &mut Session, daemon: &Builder) -> [f64; 2] {
    daemon.attach(session).unwrap();
    session.take_notices();
    session.execute(CREATE).unwrap();
    let notices = session.take_notices();
    let times = notices.iter().find(|notice| notice.detail.starts_with("Scan ")).expect("the times");
    let seconds: Vec<f64> = times.detail.split(' ').filter_map(|word| word.parse().ok()).collect();
    [seconds[0], seconds[2]]
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[test]
#[ignore = "measures"]
fn relayed_bytes_against_direct_ones() {
    let mut session = CLUSTER.database("throughput").unwrap();
    // Not normally distributed, but no two alike: the graph is of no interest.
    let mut state = 1u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    let base = Vectors::new(DIMS, (0..ROWS * DIMS).map(|_| number()).collect());
    copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
    session.execute("VACUUM ANALYZE items").unwrap();
    let router = ["--min-builders", "1", "--max-builders", "1"];
    for tls in [true, false] {
        let options = [BuilderOptions::default(), BuilderOptions::router(&router)];
        let daemons = options.map(|options| Builder::start_with(&BuilderOptions { tls, ..options }).unwrap());
        let mut times = [vec![], vec![]];
        for round in 0..=ROUNDS {
            for (daemon, times) in daemons.iter().zip(&mut times) {
                let taken = build(&mut session, daemon);
                // The first one warms up.
                if round > 0 {
                    times.push(taken);
                }
                session.execute("DROP INDEX items_idx; CHECKPOINT").unwrap();
            }
        }
        session.execute(CREATE).unwrap();
        let pages: f64 = session.value("SELECT pg_relation_size('items_idx')").unwrap();
        session.execute("DROP INDEX items_idx").unwrap();
        let rows = (ROWS * DIMS * 4) as f64;
        for (at, what, bytes) in [(0, "rows", rows), (1, "pages", pages)] {
            let [direct, relayed] = times.each_ref().map(|times| median(times.iter().map(|times| times[at]).collect()));
            println!(
                "TLS {tls}, {:.0} MB of {what}: direct {:.0} MB/s, relayed {:.0} MB/s, {:.0} %",
                bytes / 1e6,
                bytes / 1e6 / direct,
                bytes / 1e6 / relayed,
                100.0 * direct / relayed
            );
        }
        println!("{times:?}");
    }
}
