//! Hostile connections of every kind do not prevent a client's build, and cost the daemons little memory.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    Builder, BuilderOptions, Cluster, Column, Scratch, Session, Stranger, Strangers, children, copy_rows, data_set,
    inspect, resident_bytes, wait_for,
};

const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";
const TOKEN: &str = "known-0123456789abcdef";
/// Concurrent hostile connections.
const STRANGERS: usize = 256;
/// The most memory that the router may use, in bytes.
const ROUTER: u64 = 64 << 20;
/// The memory limit of its builder, in bytes.
const BUILDER: u64 = 256 << 20;

fn megabytes(bytes: u64) -> u64 {
    bytes >> 20
}

/// Builds an index; returns the seconds, and the peak memory of the router and of its builder.
fn build(session: Session, router: &Builder, cluster: &Cluster) -> (Session, f64, [u64; 2]) {
    let pid = router.pid().unwrap();
    let begun = Instant::now();
    let building = session.start(CREATE);
    let mut most = [0; 2];
    while !building.is_finished() {
        let builder = children(pid).into_iter().map(resident_bytes).max().unwrap_or(0);
        most = [most[0].max(resident_bytes(pid)), most[1].max(builder)];
        thread::sleep(Duration::from_millis(20));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (mut session, result) = building.join().unwrap();
    result.unwrap();
    inspect(cluster, &mut session, "items_idx").unwrap();
    session.execute("DROP INDEX items_idx").unwrap();
    (session, seconds, most)
}

#[test]
fn strangers_cost_little_and_a_client_gets_its_index() {
    let cluster = Cluster::start().unwrap();
    let mut session = cluster.database("strangers").unwrap();
    copy_rows(&mut session, "items", Column::Vector, &data_set("minilm-384").unwrap().0.truncated(3000)).unwrap();
    session.execute(&format!("SET hnsw.external_index_token = '{TOKEN}'")).unwrap();
    let folder = Scratch::new("strangers", 0o700).unwrap();
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, format!("{TOKEN}\n")).unwrap();
    let limit = format!("--builder-arg=--memory-limit={}MB", megabytes(BUILDER));
    for tls in [false, true] {
        let arguments = [
            "--token-file",
            tokens.to_str().unwrap(),
            "--idle-timeout",
            "5s",
            "--max-connections",
            "300",
            "--max-handshakes",
            "1000",
            &limit,
        ];
        let router = Builder::start_with(&BuilderOptions { tls, ..BuilderOptions::router(&arguments) }).unwrap();
        router.attach(&mut session).unwrap();
        // The first build starts a builder, so it is not measured.
        let (warm, ..) = build(session, &router, &cluster);
        let (warm, alone, _) = build(warm, &router, &cluster);
        // Kinds without a valid token.
        let strangers = Strangers::send(router.address(), &Stranger::UNKNOWN, STRANGERS, "").unwrap();
        let have_come = || Ok((strangers.connected() == STRANGERS).then_some(()));
        wait_for("the strangers", Duration::from_secs(60), have_come).unwrap();
        let (used, among, [of_router, of_builder]) = build(warm, &router, &cluster);
        drop(strangers);
        session = used;
        println!(
            "TLS {tls}: alone {alone:.2} s, among {STRANGERS} strangers {among:.2} s ({:.1} times); router {} MiB, \
             builder {} MiB",
            among / alone,
            megabytes(of_router),
            megabytes(of_builder)
        );
        assert!(of_router < ROUTER, "the router had {} MiB", megabytes(of_router));
        assert!(of_builder < BUILDER, "the builder had {} MiB", megabytes(of_builder));
        router.expect_idle(Duration::from_secs(60)).unwrap();
    }
}
