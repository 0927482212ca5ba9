//! The network or the builder is slower than the scan: workers wait for room in shared memory, and keep to the rate.

use std::thread;
use std::time::Duration;

use harness::{Building, Direction, Proxy};

use crate::scene::{Scene, build, read_by_workers, taken_part, workers_of};

const CREATE: &str =
    "CREATE INDEX large_idx ON large USING hnsw (v vector_l2_ops) WITH (external = true, m = 8, ef_construction = 16)";

/// Rows of `large`, and bytes of each on its way to the builder: 24 MB, six times what fits into the batches of two workers.
const ROWS: u32 = 20_000;
const ROW: u32 = 1206;

/// A table whose rows do not fit into the batches.
fn scene(database: &str) -> Scene {
    let mut scene = Scene::new(database);
    scene
        .session
        .execute(&format!(
            "CREATE TABLE large (v vector(300));
             INSERT INTO large SELECT ((SELECT array_agg(random() + 0 * (i + g)) FROM generate_series(1, 16) g)
                     || array_fill(0::float8, ARRAY[284]))::real[]::vector FROM generate_series(1, {ROWS}) i"
        ))
        .unwrap();
    scene
}

/// A build whose two workers wait for room.
struct Waiting {
    /// The network, which passes nothing more.
    proxy: Proxy,
    building: Building,
    backend: u32,
    workers: Vec<u32>,
}

/// Starts a build in a session of its own, and returns when its workers wait.
fn waiting(scene: &Scene) -> Waiting {
    let proxy = Proxy::start(scene.builder.address()).unwrap();
    proxy.stop_after(Direction::ToBuilder, 3 << 20);
    let mut session = scene.watcher();
    scene.builder.attach_through(&mut session, proxy.port()).unwrap();
    workers_of(&mut session, "large", 2);
    let backend = session.pid();
    let building = session.start(CREATE);
    proxy.wait_until_stopped(Direction::ToBuilder).unwrap();
    let workers = scene.wait_for_workers(backend, "wait_event_type = 'Extension'");
    Waiting { proxy, building, backend, workers }
}

#[test]
fn workers_wait_for_room_and_go_on() {
    let mut scene = scene("room");
    workers_of(&mut scene.session, "large", 0);
    scene.session.execute(CREATE).unwrap();
    let expected = scene.bytes("large_idx");
    scene.session.execute("DROP INDEX large_idx").unwrap();
    // Stopped for a while, then slow.
    let Waiting { proxy, building, .. } = waiting(&scene);
    thread::sleep(Duration::from_millis(300));
    proxy.slow(Direction::ToBuilder, 16 << 20);
    proxy.stop_after(Direction::ToBuilder, u64::MAX);
    let (mut session, result) = building.join().unwrap();
    result.unwrap();
    assert!(scene.bytes("large_idx") == expected, "not the same bytes");
    let notices = {
        session.execute("DROP INDEX large_idx").unwrap();
        build(&mut session, CREATE).unwrap()
    };
    assert_eq!(taken_part(&notices), 2);
    assert!(read_by_workers(&notices) > 0);
}

#[test]
fn workers_that_wait_for_room_are_cancelled() {
    let mut scene = scene("room_cancelled");
    for (function, of_worker, sqlstate) in [
        ("pg_cancel_backend", false, "57014"),
        ("pg_cancel_backend", true, "57014"),
        ("pg_terminate_backend", true, "57P01"),
        ("pg_terminate_backend", false, "57P01"),
    ] {
        let Waiting { building, backend, workers, .. } = waiting(&scene);
        let pid = if of_worker { workers[1] } else { backend };
        scene.session.execute(&format!("SELECT {function}({pid})")).unwrap();
        let (_, result) = building.join().unwrap();
        let error = result.unwrap_err();
        assert_eq!(error.server().sqlstate, sqlstate, "{function}, worker {of_worker}: {error}");
    }
    scene.expect_next_build();
}

/// `max_rate` is for all rows, whoever reads them: the rows are far more than what fits into the batches.
#[test]
fn workers_keep_to_the_rate_once_batches_are_full() {
    let mut scene = scene("room_rate");
    let session = &mut scene.session;
    workers_of(session, "large", 2);
    session.execute("SET hnsw.external_index_max_rate = '8MB'").unwrap();
    let notices = build(session, CREATE).unwrap();
    assert_eq!(taken_part(&notices), 2);
    let last = notices.iter().find(|notice| notice.message.starts_with("indexed ")).unwrap();
    let scan = last.detail.split_once("Scan ").unwrap().1;
    let scan: f64 = scan.split_once(" s").unwrap().0.parse().unwrap();
    // A batch and a tenth of a second's worth are free. If each process had the rate, the scan would take a third.
    let (bytes, rate, batch) = (f64::from(ROWS * ROW), f64::from(8 << 20), f64::from(256 << 10));
    println!("{scan} s, {:.2} s by the rate", bytes / rate);
    assert!(scan > (bytes - batch) / rate - 0.3, "{scan} s");
}
