//! Builds that end early without an error: cancelled, abandoned, forgotten, shut down.
//!
//! That a build ended early shows in the error that the client receives instead of a Layout or pages, and in the outcome, not in the time.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use protocol::{BuilderMessage, ClientMessage, MAGIC};

use lantern_index_server::Config;

use crate::support::{Builder, Client, Rows, eventually, hello};

/// A client whose long build has received all rows.
fn building(builder: &Builder) -> Client<TcpStream> {
    let mut client = builder.connect();
    let mut hello = hello(128);
    (hello.m, hello.ef_construction) = (32, 800);
    client.hello(hello);
    let rows = Rows::new(16_000, 128);
    client.rows(&rows, 4000);
    client.end_of_rows(16_000);
    client
}

/// A client that has received the Layout of an index whose pages exceed the socket buffers, and reads no pages.
fn paging(builder: &Builder) -> Client<TcpStream> {
    let mut client = builder.connect();
    let mut hello = hello(1900);
    (hello.m, hello.ef_construction) = (2, 4);
    client.hello(hello);
    let rows = Rows::new(4000, 1900);
    client.rows(&rows, 100);
    client.end_of_rows(4000);
    match client.news() {
        Some(BuilderMessage::Layout(layout)) => assert!(layout.blocks >= 4000, "{layout:?}"),
        other => panic!("{other:?}"),
    }
    client
}

fn expect_cancelled(builder: &Builder) {
    builder.settle();
    assert_eq!((builder.builds("cancelled"), builder.status_number()), (1, 2));
}

#[test]
fn cancel_while_rows_are_due() {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.hello(hello(4));
    client.rows(&Rows::new(1000, 4), 100);
    client.send(&ClientMessage::Cancel);
    assert_eq!(client.error().sqlstate.as_str(), "57014");
    expect_cancelled(&builder);
}

#[test]
fn cancel_while_the_graph_is_built() {
    let builder = Builder::start();
    let mut client = building(&builder);
    client.send(&ClientMessage::Cancel);
    assert_eq!(client.error().sqlstate.as_str(), "57014");
    expect_cancelled(&builder);
}

#[test]
fn cancel_while_pages_are_sent() {
    let builder = Builder::start();
    let mut client = paging(&builder);
    client.send(&ClientMessage::Cancel);
    assert_eq!(client.error().sqlstate.as_str(), "57014");
    expect_cancelled(&builder);
}

#[test]
fn disconnecting_cancels_the_build() {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.hello(hello(4));
    client.rows(&Rows::new(1000, 4), 100);
    drop(client);
    builder.settle();
    drop(building(&builder));
    builder.settle();
    drop(paging(&builder));
    builder.settle();
    assert_eq!((builder.builds("cancelled"), builder.status_number()), (3, 2));
}

#[test]
fn disconnecting_while_all_queues_are_full_cancels_the_build() {
    // An engine that does its work while rows arrive.
    let builder = Builder::with(|config| config.engine = hnsw::EngineKind::Usearch);
    let mut client = builder.connect();
    let mut hello = hello(128);
    (hello.m, hello.ef_construction) = (32, 800);
    client.hello(hello);
    client.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let batch = Rows::new(4000, 128);
    let mut frame = Vec::new();
    batch.batches(4000).next().unwrap().take(|part| std::io::Write::write_all(&mut frame, part)).unwrap();
    // Send until all queues are full.
    while std::io::Write::write_all(&mut client.stream, &frame).is_ok() {}
    drop(client);
    // The builder reads nothing now: it notices the closed connection at its next progress message.
    builder.settle();
    assert_eq!(builder.builds("cancelled"), 1);
}

#[test]
fn silence_while_rows_are_due_ends_the_build() {
    let builder = Builder::with(|config| config.listening.idle_timeout = Duration::from_secs(5));
    let mut client = builder.connect();
    client.hello(hello(4));
    for _ in 0..6 {
        client.send(&ClientMessage::Heartbeat);
        std::thread::sleep(Duration::from_secs(1));
    }
    let since = Instant::now();
    client.send(&ClientMessage::Heartbeat);
    let error = client.error();
    assert!(since.elapsed() >= Duration::from_millis(4500), "heartbeats count");
    assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("08006", "client sent nothing for 5 s"));
    expect_cancelled(&builder);
}

#[test]
fn silence_before_the_hello_ends_the_connection() {
    let builder = Builder::with(|config| config.listening.handshake_timeout = Duration::from_secs(1));
    let mut silent = builder.connect_raw();
    assert_eq!(silent.next(), None);
    let mut half = builder.connect_raw();
    half.raw(&MAGIC);
    assert_eq!(half.error().message, "no Hello within 1 s");
}

#[test]
fn a_client_that_reads_no_pages_is_cancelled() {
    let builder = Builder::with(|config| config.listening.idle_timeout = Duration::from_secs(2));
    let _client = paging(&builder);
    expect_cancelled(&builder);
}

#[test]
fn shutdown_lets_builds_end() {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.hello(hello(4));
    let mut waiting = builder.connect();
    // The ping makes sure that the builder knows the protocol.
    waiting.send(&ClientMessage::Ping(protocol::Ping::default()));
    assert!(matches!(waiting.next(), Some(BuilderMessage::Pong(_))));
    builder.shutdown.drain.cancel();
    eventually("not ready", || builder.get("/readyz").contains("503"));
    assert!(TcpStream::connect(builder.address).is_err());
    client.index_of(&Rows::new(100, 4), 100);
    assert_eq!(waiting.error().sqlstate.as_str(), "57P01");
}

#[test]
fn builds_end_after_the_drain_timeout() {
    let builder = Builder::with(|config| config.drain_timeout = Duration::from_millis(200));
    let mut client = building(&builder);
    builder.shutdown.drain.cancel();
    let error = client.error();
    assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("57P01", "builder is shutting down"));
    drop(builder);
}

#[test]
fn abort_does_not_wait_for_the_drain_timeout() {
    let builder = Builder::start();
    let mut client = building(&builder);
    builder.shutdown.drain.cancel();
    builder.shutdown.abort.cancel();
    assert_eq!(client.error().sqlstate.as_str(), "57P01");
}

#[test]
fn connections_beyond_the_limit_wait() {
    let builder = Builder::with(|config| config.listening.max_connections = 1);
    let mut first = builder.connect();
    first.hello(hello(4));
    let second = TcpStream::connect(builder.address).unwrap();
    second.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut byte = [0; 1];
    assert!(std::io::Read::read(&mut &second, &mut byte).is_err(), "greeted too early");
    drop(first);
    second.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = Client::greeted(second);
}

#[test]
fn a_client_that_stays_after_its_build_locks_nobody_out() {
    let builder = Builder::with(|config| config.listening.max_connections = 1);
    let mut first = builder.connect();
    first.hello(hello(4));
    first.index_of(&Rows::new(10, 4), 10);
    // The first client's socket stays open, for up to the idle timeout of ten minutes; the second must not wait for that.
    let second = TcpStream::connect(builder.address).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = Client::greeted(second);
    drop(first);
}

#[test]
fn builds_and_their_rows_have_time_limits() {
    type Set = fn(&mut Config);
    let limits: [(Set, &str); 2] = [
        (|config| config.max_build_time = Some(Duration::from_secs(1)), "build took longer than 1 s"),
        (|config| config.max_rows_time = Some(Duration::from_secs(1)), "rows took longer than 1 s"),
    ];
    for (set, message) in limits {
        let builder = Builder::with(set);
        let mut client = builder.connect();
        client.hello(hello(4));
        let error = client.error();
        assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("54000", message));
    }
}
