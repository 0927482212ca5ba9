//! Builds that need more memory than is available, together or alone.

use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use pages::{Estimate, ValueType};
use protocol::{BuilderMessage, ClientMessage, Hello};

use crate::support::{Builder, Client, Rows, eventually, hello};

const DIMS: u32 = 64;
const ROWS: u64 = 4000;

/// Bytes that the builder reserves for a build of [`ROWS`] rows.
fn need() -> u64 {
    let (value_type, value_len) = (ValueType::Vector, 4 * DIMS as usize);
    let shape = Estimate { value_type, dims: DIMS, value_len, m: 16, rows: ROWS, elements: ROWS };
    shape.build_memory_bytes(2)
}

fn sized(rows: u64) -> Hello {
    Hello { estimated_rows: rows, ..hello(DIMS) }
}

/// Waits for the Accept; returns the reserved bytes, and the positions in the queue reported before.
fn accepted(client: &mut Client<TcpStream>) -> (u64, Vec<u32>) {
    let mut positions = Vec::new();
    loop {
        match client.next() {
            Some(BuilderMessage::Accept(accept)) => return (accept.memory_reserved, positions),
            Some(BuilderMessage::Wait(wait)) => {
                assert!(!wait.reason.is_empty());
                positions.push(wait.position);
            }
            Some(BuilderMessage::Heartbeat) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Requests a build and waits until it is in the queue.
fn queued(builder: &Builder, position: u32) -> Client<TcpStream> {
    let mut client = builder.connect();
    client.send(&ClientMessage::Hello(sized(ROWS)));
    match client.next() {
        Some(BuilderMessage::Wait(wait)) => assert_eq!(wait.position, position),
        other => panic!("{other:?}"),
    }
    client
}

#[test]
fn eight_builds_stay_within_the_limit_and_in_order() {
    let limit = need() * 8 / 3;
    let builder = Builder::with(|config| config.memory_limit = limit);
    let rows = Rows::new(ROWS as usize, DIMS);
    let order = Mutex::new(Vec::new());
    // Running builds and their reserved memory, as counted by the clients.
    let reserved = Mutex::new((0u64, 0u64));
    let finish = |mut client: Client<TcpStream>| {
        client.rows(&rows, 500);
        // Once all rows are sent, the build may end and its memory may go to another one.
        reserved.lock().unwrap().0 -= need();
        client.end_of_rows(ROWS);
        assert_eq!(client.pages().done.rows, ROWS);
    };
    std::thread::scope(|scope| {
        let mut held = Vec::new();
        // The first two builds hold the memory until the six others are in the queue, one after the other.
        for _ in 0..2 {
            let mut client = builder.connect();
            client.send(&ClientMessage::Hello(sized(ROWS)));
            let (memory, positions) = accepted(&mut client);
            assert_eq!((memory, positions.len()), (need(), 0));
            reserved.lock().unwrap().0 += memory;
            held.push(client);
        }
        let waiting: Vec<_> = (1..=6).map(|position| queued(&builder, position)).collect();
        for (number, mut client) in waiting.into_iter().enumerate() {
            let (order, reserved, finish) = (&order, &reserved, &finish);
            scope.spawn(move || {
                let (memory, positions) = accepted(&mut client);
                assert_eq!(memory, need());
                assert!(positions.is_sorted_by(|a, b| a > b), "{positions:?}");
                order.lock().unwrap().push(number);
                let mut reserved_now = reserved.lock().unwrap();
                reserved_now.0 += memory;
                reserved_now.1 = reserved_now.1.max(reserved_now.0);
                drop(reserved_now);
                finish(client);
            });
        }
        for client in held {
            let finish = &finish;
            scope.spawn(move || finish(client));
        }
    });
    let (_, most) = *reserved.lock().unwrap();
    assert!(most <= limit, "{most} of {limit}");
    // A client receives its last frame before the builder counts the build as ended.
    builder.settle();
    assert_eq!(builder.builds("succeeded"), 8);
    let mut order = order.into_inner().unwrap();
    // Two builds may be admitted so shortly after one another that their threads get here in either order.
    for pair in order.windows(2) {
        assert!(pair[1] + 2 > pair[0], "{order:?}");
    }
    order.sort_unstable();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_build_beyond_the_memory_limit_is_refused_at_once() {
    let builder = Builder::with(|config| config.memory_limit = 64 << 20);
    let mut first = builder.connect();
    first.hello(hello(4));
    for rows in [1_000_000, 10 << 30, u64::MAX] {
        let refuse = builder.connect().refused(sized(rows));
        assert_eq!((refuse.report.sqlstate.as_str(), refuse.retry_after_ms), ("53200", 0));
        assert!(
            refuse.report.detail.contains(&rows.to_string()) && refuse.report.detail.contains("limit is 64 MB"),
            "{refuse:?}"
        );
        assert!(refuse.report.hint.contains("--memory-limit"), "{refuse:?}");
    }
    first.index_of(&Rows::new(100, 4), 100);
    assert_eq!(builder.builds("refused"), 3);
}

#[test]
fn a_waiting_client_may_cancel_or_leave() {
    let builder = Builder::with(|config| config.max_builds = 1);
    let mut running = builder.connect();
    running.hello(hello(DIMS));
    let mut cancelling = queued(&builder, 1);
    let mut leaving = queued(&builder, 2);
    let mut staying = queued(&builder, 3);
    cancelling.send(&ClientMessage::Cancel);
    assert_eq!(cancelling.error().sqlstate.as_str(), "57014");
    match staying.news() {
        Some(BuilderMessage::Wait(wait)) => assert_eq!(wait.position, 2),
        other => panic!("{other:?}"),
    }
    // Closing with unread messages would reset the connection, and the builder might log another reason.
    leaving.half_close();
    while leaving.next().is_some() {}
    match staying.news() {
        Some(BuilderMessage::Wait(wait)) => assert_eq!(wait.position, 1),
        other => panic!("{other:?}"),
    }
    // A queued client must not send rows yet.
    let mut early = queued(&builder, 2);
    early.rows(&Rows::new(1, DIMS), 1);
    assert_eq!(early.error().sqlstate.as_str(), "08P01");
    let status = builder.get("/status");
    for reason in ["build cancelled by the client", "client left", "unexpected Tuples while waiting"] {
        assert!(status.contains(reason), "{reason}: {status}");
    }
    drop(running);
    let (_, positions) = accepted(&mut staying);
    assert_eq!(positions, [0; 0]);
}

#[test]
fn a_waiting_client_that_sends_no_heartbeats_is_removed() {
    let builder = Builder::with(|config| {
        config.max_builds = 1;
        config.listening.idle_timeout = Duration::from_secs(3);
    });
    let mut running = builder.connect();
    running.hello(hello(DIMS));
    let mut silent = queued(&builder, 1);
    let mut steady = queued(&builder, 2);
    let mut position = 2;
    while position == 2 {
        running.send(&ClientMessage::Heartbeat);
        steady.send(&ClientMessage::Heartbeat);
        steady.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        position = steady.try_next().map_or(2, |message| match message {
            BuilderMessage::Wait(wait) => wait.position,
            BuilderMessage::Heartbeat => 2,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!((position, silent.error().sqlstate.as_str()), (1, "08006"));
}

#[test]
fn shutdown_refuses_waiting_builds() {
    let builder = Builder::with(|config| config.max_builds = 1);
    let mut running = builder.connect();
    running.hello(hello(4));
    let mut waiting = queued(&builder, 1);
    builder.shutdown.drain.cancel();
    match waiting.news() {
        Some(BuilderMessage::Refuse(refuse)) => {
            assert_eq!((refuse.report.sqlstate.as_str(), refuse.retry_after_ms > 0), ("57P03", true));
        }
        other => panic!("{other:?}"),
    }
    running.index_of(&Rows::new(10, 4), 10);
}

#[test]
fn builds_outgrow_their_estimate_until_no_memory_is_free() {
    let builder = Builder::with(|config| config.memory_limit = 3 * need());
    // One row estimated: more memory is reserved as rows arrive.
    let mut growing = builder.connect();
    growing.hello(sized(1));
    growing.index_of(&Rows::new(ROWS as usize, DIMS), 100);
    // The growing build gets no more memory and ends; no other build is affected.
    let mut good = builder.connect();
    good.hello(sized(ROWS));
    let mut bad = builder.connect();
    bad.hello(sized(1));
    let batch = Rows::new(2000, DIMS);
    let mut frame = Vec::new();
    batch.batches(2000).next().unwrap().take(|part| std::io::Write::write_all(&mut frame, part)).unwrap();
    while std::io::Write::write_all(&mut bad.stream, &frame).is_ok() {
        bad.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        match bad.try_next() {
            Some(BuilderMessage::Error(error)) => {
                assert_eq!(error.sqlstate.as_str(), "53200", "{error:?}");
                assert!(error.detail.contains("are reserved") && error.hint.contains("ANALYZE"), "{error:?}");
                break;
            }
            Some(BuilderMessage::Progress(_)) | None => {}
            other => panic!("{other:?}"),
        }
    }
    good.index_of(&Rows::new(ROWS as usize, DIMS), 500);
    eventually("both are counted", || (builder.builds("succeeded"), builder.builds("failed")) == (2, 1));
}
