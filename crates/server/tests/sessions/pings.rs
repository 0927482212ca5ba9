//! A ping is answered, and does not count as a build.

use std::time::Duration;

use protocol::{BuilderMessage, ClientMessage, Pong};

use crate::support::{Builder, Client, Rows, Stream, hello};

fn ping<S: Stream>(client: &mut Client<S>) -> Pong {
    client.send(&ClientMessage::Ping(protocol::Ping::default()));
    match client.next() {
        Some(BuilderMessage::Pong(pong)) => pong,
        other => panic!("no Pong but {other:?}"),
    }
}

fn ended(builder: &Builder) -> u64 {
    ["succeeded", "failed", "cancelled", "refused"].iter().map(|outcome| builder.builds(outcome)).sum()
}

#[test]
fn a_pong_has_threads_free_memory_and_version() {
    let builder = Builder::start();
    let mut client = builder.connect();
    for _ in 0..2 {
        let pong = ping(&mut client);
        assert_eq!((pong.protocol, pong.threads), (2, 2));
        assert!(pong.builder_version.starts_with("lantern-index "), "{pong:?}");
        // Plausible bounds: this machine has some free memory, but no exabyte.
        assert!((1..1 << 60).contains(&pong.memory_free), "{pong:?}");
    }
    client.half_close();
    assert_eq!(client.next(), None);
    assert_eq!(ended(&builder), 0);
}

#[test]
fn a_build_may_follow_a_ping() {
    let builder = Builder::start();
    let mut client = builder.connect();
    ping(&mut client);
    client.hello(hello(4));
    client.index_of(&Rows::new(100, 4), 100);
}

#[test]
fn a_ping_during_a_build_is_an_error() {
    let builder = Builder::start();
    let mut client = builder.connect();
    client.hello(hello(4));
    client.send(&ClientMessage::Ping(protocol::Ping::default()));
    let error = client.error();
    assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("08P01", "unexpected Ping while sending rows"));
}

#[test]
fn the_101st_ping_is_an_error() {
    let builder = Builder::start();
    let mut client = builder.connect();
    (0..100).for_each(|_| _ = ping(&mut client));
    client.send(&ClientMessage::Ping(protocol::Ping::default()));
    assert_eq!(client.error().message, "more than 100 pings on a connection");
}

#[test]
fn pings_do_not_extend_the_handshake_timeout() {
    let builder = Builder::with(|config| config.listening.handshake_timeout = Duration::from_secs(5));
    let mut client = builder.connect();
    ping(&mut client);
    std::thread::sleep(Duration::from_secs(1));
    ping(&mut client);
    assert_eq!(client.error().message, "no Hello within 5 s");
}
