//! Builds that succeed, over plain TCP.

use std::thread;

use graph::ValueType;
use pages::{PageBytes, verify};
use protocol::ClientMessage;

use crate::support::{Builder, Built, Client, Rows, Stream, eventually, hello};

fn build<S: Stream>(client: &mut Client<S>, rows: &Rows) -> Built {
    let mut hello = hello(rows.dims);
    hello.estimated_rows = rows.len() as u64;
    client.hello(hello);
    client.index_of(rows, 100)
}

fn check(built: &Built, rows: u64) {
    let mut source: &[PageBytes] = &built.pages;
    let report = verify(&mut source, Some(ValueType::Vector));
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.heap_tids, rows);
    assert_eq!(built.done.rows, rows);
    assert_eq!(built.layout.elements, built.done.elements);
}

#[test]
fn pages_of_a_good_build_verify() {
    let builder = Builder::start();
    assert_eq!(builder.status_number(), 0);
    let rows = Rows::new(3000, 24);
    let mut client = builder.connect();
    let built = build(&mut client, &rows);
    check(&built, 3000);
    assert_eq!(built.done.elements, 3000);
    assert_eq!(built.done.unreachable, 0);
    assert!(built.done.self_recall_ppm > 900_000, "{}", built.done.self_recall_ppm);
    assert!(built.phases.is_sorted(), "{:?}", built.phases);
    drop(client);

    builder.settle();
    assert_eq!(builder.builds("succeeded"), 1);
    assert_eq!(builder.status_number(), 3);
    assert_eq!(builder.metric("lantern_index_tuples_received_total"), 3000);
    assert_eq!(builder.metric("lantern_index_pages_sent_total"), u64::from(built.done.blocks));
    assert!(builder.metric("lantern_index_received_bytes_total") > 3000 * 24 * 4);
    assert!(builder.metric("lantern_index_sent_bytes_total") > u64::from(built.done.blocks) * 8192);
}

#[test]
fn an_empty_table_has_an_index_too() {
    let builder = Builder::start();
    let built = build(&mut builder.connect(), &Rows::new(0, 3));
    check(&built, 0);
    assert_eq!(built.pages.len(), 2);
}

#[test]
fn rows_of_equal_values_share_elements() {
    let builder = Builder::start();
    let mut rows = Rows::new(200, 4);
    rows.values[..25 * 4].fill(0.5);
    let built = build(&mut builder.connect(), &rows);
    check(&built, 200);
    assert_eq!(built.done.elements, 175 + 3);
}

#[test]
fn two_builds_at_once() {
    let builder = Builder::start();
    let work = |count| {
        let mut client = builder.connect();
        let built = build(&mut client, &Rows::new(count, 16));
        check(&built, count as u64);
    };
    // Both builds are admitted before the first rows are sent.
    let (mut first, mut second) = (builder.connect(), builder.connect());
    first.hello(hello(16));
    second.hello(hello(16));
    assert_eq!(builder.metric("lantern_index_build_active"), 2);
    drop((first, second));
    thread::scope(|scope| {
        scope.spawn(|| work(2000));
        scope.spawn(|| work(1500));
    });
    builder.settle();
    assert_eq!((builder.builds("succeeded"), builder.builds("cancelled")), (2, 2));
}

#[test]
fn heartbeats_and_optional_frames_are_welcome() {
    let builder = Builder::start();
    let rows = Rows::new(100, 3);
    let mut client = builder.connect();
    client.hello(hello(3));
    client.send(&ClientMessage::Heartbeat);
    client.rows(&rows, 50);
    // Kind 0x70, flag OPTIONAL, no payload.
    let head = [0x70, 1, 0, 0, 0, 0, 0, 0];
    let mut frame = head.to_vec();
    frame.extend(crc32c::crc32c(&head).to_le_bytes());
    client.raw(&frame);
    client.end_of_rows(100);
    client.send(&ClientMessage::Heartbeat);
    check(&client.pages(), 100);
    // Arrives after Done was sent, too late to cancel anything.
    client.send(&ClientMessage::Cancel);
    drop(client);
    eventually("the build counts", || builder.builds("succeeded") == 1);
}
