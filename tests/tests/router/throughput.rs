//! Throughput of rows and pages through a relaying router, compared with a direct connection. It measures time, so it needs an otherwise
//! idle machine and a release build: `LANTERN_INDEX=target/release/lantern-index cargo test -p lantern-index-tests --test router throughput
//! -- --ignored --nocapture`. A report is in `benches/results`.

use std::time::Instant;

use harness::{Builder, BuilderOptions, Column, Random, Session, Vectors, children, copy_rows, cpu_seconds};

use crate::scene::CLUSTER;

const ROWS: usize = 50_000;
const DIMS: usize = 384;
const ROUNDS: usize = 15;
/// Few neighbors: the graph should take little time.
const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) \
                      WITH (m = 4, ef_construction = 16, external = true)";

/// Seconds of the scan, of the pages, and of the statement.
fn build(session: &mut Session, daemon: &Builder) -> [f64; 3] {
    daemon.attach(session).unwrap();
    session.take_notices();
    let started = Instant::now();
    session.execute(CREATE).unwrap();
    let whole = started.elapsed().as_secs_f64();
    let notices = session.take_notices();
    let times = notices.iter().find(|notice| notice.detail.starts_with("Scan ")).expect("the times");
    let seconds: Vec<f64> = times.detail.split(' ').filter_map(|word| word.parse().ok()).collect();
    [seconds[0], seconds[2], whole]
}

/// The size of the index in bytes.
fn pages(session: &mut Session) -> f64 {
    session.value("SELECT pg_relation_size('items_idx')").unwrap()
}

/// The lower quartile, the median and the upper quartile.
fn quartiles(numbers: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| numbers[(numbers.len() - 1) * quarter / 4])
}

/// CPU seconds of a router without its builders.
fn own_seconds(router: &Builder) -> f64 {
    let pid = router.pid().expect("it runs");
    cpu_seconds(pid) - children(pid).into_iter().map(cpu_seconds).sum::<f64>()
}

#[test]
#[ignore = "measures"]
fn relayed_bytes_against_direct_ones() {
    let mut session = CLUSTER.database("throughput").unwrap();
    // Not normally distributed, but all different: the graph does not matter.
    let mut random = Random::new(1);
    let base = Vectors::new(DIMS, (0..ROWS * DIMS).map(|_| random.unit()).collect());
    copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
    session.execute("VACUUM ANALYZE items").unwrap();
    let router = ["--min-builders", "1", "--max-builders", "1"];
    for tls in [true, false] {
        let options = [BuilderOptions::default(), BuilderOptions::router(&router)];
        let daemons = options.map(|options| Builder::start_with(&BuilderOptions { tls, ..options }).unwrap());
        let (mut rounds, mut bytes_of_pages, mut own) = (Vec::new(), 0.0, 0.0);
        for round in 0..=ROUNDS {
            let mut taken = [[0.0; 3]; 2];
            // Alternate which of the two comes first.
            for which in [round % 2, 1 - round % 2] {
                let before = own_seconds(&daemons[1]);
                taken[which] = build(&mut session, &daemons[which]);
                // The first round is a warm-up.
                own += if round > 0 && which == 1 { own_seconds(&daemons[1]) - before } else { 0.0 };
                bytes_of_pages = pages(&mut session);
                session.execute("DROP INDEX items_idx; CHECKPOINT").unwrap();
            }
            if round > 0 {
                rounds.push(taken);
            }
        }
        let (rows, pages) = ((ROWS * DIMS * 4) as f64 / 1e6, bytes_of_pages / 1e6);
        for (at, what, megabytes) in [(0, "rows", rows), (1, "pages", pages), (2, "the whole statement", rows + pages)]
        {
            let [direct, relayed] = [0, 1].map(|which| quartiles(rounds.iter().map(|taken| taken[which][at]))[1]);
            let [low, ratio, high] = quartiles(rounds.iter().map(|taken| 100.0 * taken[0][at] / taken[1][at]));
            println!(
                "TLS {tls}, {what}, {megabytes:.0} MB: direct {direct:.2} s, {:.0} MB/s; relayed {relayed:.2} s, {:.0} MB/s; \
                 {ratio:.0} % in the median of {ROUNDS} pairs, quartiles {low:.0} and {high:.0} %",
                megabytes / direct,
                megabytes / relayed
            );
        }
        println!("the router's own CPU: {:.3} s per build", own / ROUNDS as f64);
    }
}
