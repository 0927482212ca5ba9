//! Clients that send invalid orders or rows.

use std::io::{Read, Write};

use protocol::v1::Init;

use crate::client::{Client, END, Failure, connect};
use crate::support::{Builder, eventually};
use crate::table::{Numbers, Opclass, Table, tid};

fn table() -> Table {
    Table::random(Opclass::L2, 50, 4, 1)
}

/// The answer to an order.
fn answer(builder: &Builder, init: Init) -> Failure {
    Client::open(connect(builder.address), init).acknowledged().unwrap_err()
}

#[test]
fn orders_beyond_the_limits_are_refused_with_a_text() {
    let builder = Builder::start();
    let init = table().init();
    let cases = [
        (Init { pq: 1, ..init }, "product quantization is not supported"),
        (Init { metric: 7, ..init }, "metric 7 is not supported for quantization 1"),
        (Init { quantization: 4, ..init }, "quantization 4 is not supported"),
        (Init { element_bits: 0, ..init }, "0 bits per dimension, 32 expected"),
        (Init { dims: 2001, ..init }, "number of dimensions is 2001, must be between 1 and 2000"),
        (Init { dims: u32::MAX, ..init }, "number of dimensions is 4294967295, must be between 1 and 2000"),
        (Init { m: 1, ..init }, "m is 1, must be between 2 and 100"),
        (Init { ef_construction: 0, ..init }, "ef_construction is 0, must be between 32 and 1000"),
    ];
    for (init, text) in cases {
        assert_eq!(answer(&builder, init), Failure::Reported(text.to_owned()));
    }
    assert_eq!(builder.metric("lantern_index_build_active"), 0);
}

#[test]
fn random_orders_are_accepted_or_answered_with_an_error() {
    let builder = Builder::start();
    let mut numbers = Numbers::new(3);
    let mut number = || (numbers.next().to_bits() >> 3) % 300;
    for _ in 0..200 {
        let init = Init {
            pq: number() % 2 * (number() % 2),
            metric: number() % 12,
            quantization: number() % 7,
            dims: number() * 10,
            m: number(),
            ef_construction: number() * 4,
            element_bits: [1, 8, 16, 32, 64][number() as usize % 5],
            capacity: u32::MAX,
            ..Init::default()
        };
        let mut client = Client::open(connect(builder.address), init);
        if let Err(failure) = client.acknowledged() {
            assert!(matches!(failure, Failure::Reported(_)), "{failure:?}");
        }
    }
    builder.settle();
}

#[test]
fn an_incomplete_order_ends_at_the_handshake_timeout() {
    let builder = Builder::with(|config| config.listening.handshake_timeout = std::time::Duration::from_millis(200));
    let mut stream = connect(builder.address);
    stream.write_all(&table().init().to_bytes()[..30]).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert_eq!(bytes.len(), 8, "the greeting only");
}

#[test]
fn bad_rows_reset_the_connection() {
    let builder = Builder::start();
    let good = [0; 16];
    let nan = f32::NAN.to_le_bytes().repeat(4);
    let label = |tid: [u8; 6], rest: [u8; 2]| [&tid[..], &rest, &good].concat();
    let rows = [
        ("label that is no TID", label(tid(0), [0, 1])),
        ("TID of line 0", label([0; 6], [0, 0])),
        ("NaN", [&tid(0)[..], &[0, 0], &nan].concat()),
        ("bytes after the end", [&END[..], &[1]].concat()),
    ];
    for (failed, (what, row)) in (1..).zip(rows) {
        let mut client = Client::open(connect(builder.address), table().init());
        client.acknowledged().unwrap();
        client.stream.write_all(&row).unwrap();
        let mut bytes = [0; 64];
        let end = client.stream.read(&mut bytes).map_err(|error| error.kind());
        assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset), "{what}");
        eventually("the build is over", || builder.builds("failed") == failed);
    }
}

#[test]
fn bit_vectors_of_33_dimensions_are_indexed() {
    let builder = Builder::start();
    // 33 bits are 5 bytes; the last 7 bits may have any value.
    let init = Init { metric: 8, quantization: 5, dims: 33, element_bits: 1, ..table().init() };
    let mut client = Client::open(connect(builder.address), init);
    client.acknowledged().unwrap();
    let mut numbers = Numbers::new(5);
    let values: Vec<Vec<u8>> = (0..1000).map(|_| (0..5).map(|_| numbers.next().to_bits() as u8).collect()).collect();
    for (row, value) in values.iter().enumerate() {
        client.row(tid(row), value).unwrap();
    }
    let index = client.finish().unwrap();
    index.check();
    assert_eq!(index.elements.len(), 1000);
    let hamming = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    let found = values.iter().take(100).filter(|query| {
        let nearest = index.search(|value| hamming(query, value).into(), 40);
        nearest[0].value == **query
    });
    assert_eq!(found.count(), 100);
}

#[test]
fn later_builds_succeed_after_random_bytes_instead_of_rows() {
    let builder = Builder::start();
    let mut numbers = Numbers::new(17);
    for _ in 0..20 {
        let mut client = Client::open(connect(builder.address), table().init());
        client.acknowledged().unwrap();
        let noise: Vec<u8> = (0..5000).map(|_| numbers.next().to_bits() as u8).collect();
        let _ = client.stream.write_all(&noise);
    }
    builder.settle();
    table().build(connect(builder.address)).unwrap();
}
