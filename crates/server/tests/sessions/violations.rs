//! Clients that violate the protocol or its limits get the reason if possible; their connections are closed.

use std::io::Read;
use std::net::TcpStream;

use bytes::BytesMut;
use protocol::{ClientMessage, EndOfTuples, Metric, kind};

use crate::support::{Builder, Client, Rows, hello};

fn frame(message: &ClientMessage) -> BytesMut {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    bytes
}

/// Expects an error frame, a build counted as failed, and a builder that still serves.
fn expect_failure(act: impl FnOnce(&mut Client<TcpStream>), sqlstate: &str, text: &str) {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.hello(hello(4));
    act(&mut client);
    let error = client.error();
    assert_eq!(error.sqlstate.as_str(), sqlstate, "{}", error.message);
    assert!(error.message.contains(text), "{}", error.message);
    builder.settle();
    assert_eq!((builder.builds("failed"), builder.status_number()), (1, 2));

    let mut next = builder.connect();
    next.hello(hello(4));
    next.index_of(&Rows::new(10, 4), 10);
}

#[test]
fn other_protocols_are_closed() {
    let builder = Builder::start();
    for magic in [*b"GET ", [0; 4]] {
        let mut client = builder.connect_raw();
        client.raw(&magic);
        assert_eq!(client.stream.read(&mut [0; 16]).unwrap(), 0, "{magic:?}");
    }
    drop(builder.connect_raw());
    assert_eq!(builder.status_number(), 0);
}

#[test]
fn garbage_instead_of_a_hello() {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.raw(&[0xff; 64]);
    let error = client.error();
    assert_eq!(error.sqlstate.as_str(), "08P01");
    assert_eq!(builder.status_number(), 0, "no build was begun");
}

#[test]
fn rows_before_hello() {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.rows(&Rows::new(1, 3), 1);
    let error = client.error();
    assert!(error.message.contains("unexpected Tuples"), "{}", error.message);
}

#[test]
fn invalid_requests_are_refused() {
    let builder = Builder::start();
    let refuse = builder.connect().refused(hello(2001));
    assert_eq!(refuse.report.sqlstate.as_str(), "54000");
    assert_eq!(refuse.report.message, "vector has 2001 dimensions, an index can have 1 to 2000");
    let mut other = hello(3);
    other.metric = Metric::Jaccard;
    assert_eq!(builder.connect().refused(other).report.sqlstate.as_str(), "0A000");
    let mut newer = hello(3);
    (newer.protocol_min, newer.protocol_max) = (3, 4);
    assert_eq!(builder.connect().refused(newer).report.sqlstate.as_str(), "0A000");
    assert_eq!((builder.builds("refused"), builder.status_number()), (3, 0));
}

#[test]
fn a_second_hello() {
    expect_failure(|client| client.send(&ClientMessage::Hello(hello(4))), "08P01", "unexpected Hello");
}

#[test]
fn bad_checksum_of_a_frame() {
    let change = |client: &mut Client<TcpStream>| {
        let mut writer = Rows::new(3, 4).batches(3).next().unwrap();
        let mut bytes = Vec::new();
        writer
            .take(|part| -> Result<(), ()> {
                bytes.extend_from_slice(part);
                Ok(())
            })
            .unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        client.raw(&bytes);
    };
    expect_failure(change, "XX001", "Tuples frame has checksum");
}

#[test]
fn oversize_frames() {
    let header = |kind: u8, length: u32| {
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend(length.to_le_bytes());
        bytes.extend([0; 4]);
        bytes
    };
    expect_failure(
        |client| client.raw(&header(kind::TUPLES, (2 << 20) + 1)),
        "08P01",
        "2097153 bytes, 2097152 allowed",
    );
    expect_failure(|client| client.raw(&header(kind::END_OF_TUPLES, u32::MAX)), "08P01", "65536 allowed");
}

#[test]
fn frames_of_the_other_side() {
    let progress = protocol::BuilderMessage::Progress(protocol::Progress { phase: 1, done: 0, total: 0 });
    let mut bytes = BytesMut::new();
    progress.encode(&mut bytes);
    expect_failure(|client| client.raw(&bytes), "08P01", "is not for this side");
}

#[test]
fn totals_that_do_not_match() {
    let rows = Rows::new(20, 4);
    for (counted, text) in [(19, "20 rows received, the client counts 19"), (21, "the client counts 21")] {
        let act = |client: &mut Client<TcpStream>| {
            client.rows(&rows, 7);
            client.end_of_rows(counted);
        };
        expect_failure(act, "XX001", text);
    }
    let act = |client: &mut Client<TcpStream>| {
        client.rows(&rows, 7);
        client.send(&ClientMessage::EndOfTuples(EndOfTuples { rows: 20, checksum: 1 }));
    };
    expect_failure(act, "XX001", "the client's have 0x00000001");
}

#[test]
fn rows_after_the_end() {
    let rows = Rows::new(2000, 4);
    let act = |client: &mut Client<TcpStream>| {
        client.rows(&rows, 2000);
        client.end_of_rows(2000);
        client.rows(&rows, 2000);
    };
    expect_failure(act, "08P01", "unexpected Tuples");
}

#[test]
fn values_of_the_wrong_length() {
    expect_failure(|client| client.rows(&Rows::new(5, 3), 5), "08P01", "5 values of 80 bytes in all, 60 bytes found");
}

#[test]
fn values_that_are_no_numbers() {
    for number in [f32::NAN, f32::INFINITY] {
        let mut rows = Rows::new(30, 4);
        rows.values[17 * 4 + 2] = number;
        expect_failure(|client| client.rows(&rows, 10), "22000", "row 17");
    }
}

#[test]
fn truncated_control_message() {
    // EndOfTuples with 3 bytes of payload.
    let head = [kind::END_OF_TUPLES, 0, 0, 0, 3, 0, 0, 0];
    let mut bytes = head.to_vec();
    bytes.extend(crc32c::crc32c_append(crc32c::crc32c(&head), &[0; 3]).to_le_bytes());
    bytes.extend([0; 3]);
    expect_failure(|client| client.raw(&bytes), "08P01", "EndOfTuples ends in field rows");
}

#[test]
fn a_stream_that_ends_within_a_frame() {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.hello(hello(4));
    let whole = frame(&ClientMessage::EndOfTuples(EndOfTuples { rows: 0, checksum: 0 }));
    client.raw(&whole[..whole.len() - 1]);
    drop(client);
    builder.settle();
    assert_eq!((builder.builds("cancelled"), builder.status_number()), (1, 2));
}
