//! `hnsw.external_index_max_rate`, and the times that the last INFO line reports.

use std::thread;
use std::time::Instant;

use harness::{Builder, BuilderOptions, Session, inspect, wait_for};

use crate::scene::{CLUSTER, CREATE, SOON, Scene};

/// Rows and pages take about 3 MB each.
fn scene(database: &str) -> (Session, Builder) {
    let builder = Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::default() }).unwrap();
    let mut session = CLUSTER.database(database).unwrap();
    session
        .execute(
            "CREATE TABLE items (v vector(400));
             INSERT INTO items SELECT (ARRAY[i::real] || array_fill(i * i % 101, ARRAY[399])::real[])::vector
                 FROM generate_series(1, 2000) i",
        )
        .unwrap();
    builder.attach(&mut session).unwrap();
    (session, builder)
}

/// The seconds of each phase, from the last INFO line.
fn timings(session: &mut Session) -> [f64; 3] {
    let notices = session.take_notices();
    let last = notices.iter().find(|notice| notice.message == "indexed 2000 elements").unwrap();
    println!("{last}");
    ["Scan ", "build ", "pages "].map(|word| {
        let (_, rest) = last.detail.split_once(word).unwrap();
        rest.split_once(" s").unwrap().0.parse().unwrap()
    })
}

#[test]
fn rows_and_pages_keep_to_the_rate() {
    let (mut session, _builder) = scene("pace");
    session.execute("SET hnsw.external_index_max_rate = '2MB'").unwrap();
    session.execute(CREATE).unwrap();
    inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    let index: f64 = session.value("SELECT pg_relation_size('items_idx')").unwrap();
    let [scan, _, pages] = timings(&mut session);
    let rate = f64::from(2 << 20);
    // A batch, and the bytes of a tenth of a second, pass without a pause.
    assert!(scan > 0.99 * 2000.0 * 1600.0 / rate - 0.3, "{scan}");
    assert!(pages > 0.99 * index / rate - 0.3, "{pages}");
}

#[test]
fn a_pause_can_be_cancelled() {
    let (mut session, builder) = scene("pace_cancel");
    session.execute("SET hnsw.external_index_max_rate = 1").unwrap();
    let pid = session.pid();
    let building = thread::spawn(move || (session.execute(CREATE).unwrap_err(), Instant::now()));
    // A pause follows the first batch.
    let received = || Ok((builder.metric("lantern_index_tuples_received_total")? > 0.0).then_some(()));
    wait_for("the first batch", SOON, received).unwrap();
    let since = Instant::now();
    CLUSTER.session("postgres").unwrap().execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
    let (error, ended) = building.join().unwrap();
    assert_eq!(error.server().sqlstate, "57014", "{error}");
    assert!(ended - since < SOON, "{error}");
}

#[test]
fn every_role_may_set_the_rate() {
    let mut scene = Scene::new("pace_setting");
    assert_eq!(scene.session.value::<String>("SHOW hnsw.external_index_max_rate").unwrap(), "0");
    scene.session.execute("CREATE ROLE careful; SET ROLE careful; SET hnsw.external_index_max_rate = '16MB'").unwrap();
    assert_eq!(scene.session.value::<String>("SHOW hnsw.external_index_max_rate").unwrap(), "16MB");
    assert!(scene.session.execute("SET hnsw.external_index_max_rate = -1").is_err());
}
