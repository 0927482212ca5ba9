//! A frame's length is used before its checksum can be verified. If it is too large, the receiver must not wait for the
//! rest forever, even while heartbeats arrive.
use harness::{Builder, BuilderOptions, Cluster, Column, Direction, Proxy, copy_rows, data_set, inspect};

/// Bytes before the client's first frame: the choice of the protocol.
const MAGIC: u64 = 4;
/// Offset in a frame of the second byte of its length; bit 7 of it adds 32 KiB.
const LENGTH: u64 = 5;
/// Bytes of EndOfTuples, the last frame of the client: header and payload.
const LAST: u64 = 24;

#[test]
fn a_frame_whose_length_was_altered_is_given_up() {
    let cluster = Cluster::start().unwrap();
    let options = BuilderOptions::serve(&["--idle-timeout", "5s"]);
    let builder = Builder::start_with(&BuilderOptions { tls: false, ..options }).unwrap();
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
        let error = session.execute(create).unwrap_err();
        println!("{frame}: {error}");
        assert!(proxy.is_damaged(Direction::ToBuilder), "{frame}");
        assert!(error.server().sqlstate.starts_with("08"), "{frame}: {error}");
        assert!(!error.server().detail.contains("silent"), "{frame}: neither side waits for the other: {error}");
    }
    proxy.reset();
    session.execute(create).unwrap();
    inspect(&cluster, &mut session, "items_idx").unwrap();
}
