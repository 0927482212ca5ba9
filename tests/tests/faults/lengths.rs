//! The length in a frame's header is believed before its checksum can be looked at: a greater one must not be waited for
//! forever, though heartbeats go on and on.

use std::time::{Duration, Instant};

use harness::{Builder, BuilderOptions, Cluster, Column, Direction, Proxy, copy_rows, data_set, inspect};

/// Our choice of protocol, before the first header.
const MAGIC: u64 = 4;
/// The second byte of a header's length: bit 7 adds 32 KiB.
const LENGTH: u64 = 5;
/// Header and payload of EndOfTuples, the last that is sent.
const LAST: u64 = 24;

#[test]
fn a_frame_whose_length_was_altered_is_given_up() {
    let cluster = Cluster::start().unwrap();
    let arguments = vec!["--idle-timeout".to_owned(), "5s".to_owned()];
    let builder = Builder::start_with(&BuilderOptions { tls: false, arguments, ..BuilderOptions::default() }).unwrap();
    let proxy = Proxy::start(builder.address()).unwrap();
    let mut session = cluster.database("lengths").unwrap();
    let (base, _) = data_set("minilm-384").unwrap();
    copy_rows(&mut session, "items", Column::Vector, &base.truncated(100)).unwrap();
    builder.attach_through(&mut session, proxy.port()).unwrap();
    let create = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";
    session.execute(create).unwrap();
    session.execute("DROP INDEX items_idx").unwrap();
    let sent = proxy.passed(Direction::ToBuilder);

    for (frame, at) in [("Hello", MAGIC + LENGTH), ("EndOfTuples", sent - LAST + LENGTH)] {
        proxy.reset();
        proxy.damage(Direction::ToBuilder, at, 0x80);
        let start = Instant::now();
        let error = session.execute(create).unwrap_err();
        println!("{frame}, {:.0} s: {error}", start.elapsed().as_secs_f64());
        assert!(proxy.is_damaged(Direction::ToBuilder), "{frame}");
        assert!(error.server().sqlstate.starts_with("08"), "{frame}: {error}");
        assert!(start.elapsed() < Duration::from_secs(25), "{frame}");
    }
    proxy.reset();
    session.execute(create).unwrap();
    inspect(&cluster, &mut session, "items_idx").unwrap();
}
