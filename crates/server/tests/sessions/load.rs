//! Many clients at once, half of them misbehaving.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use protocol::{BuilderMessage, ClientMessage, Hello, MAGIC};

use crate::support::{Builder, Client, Rows, eventually, hello};

const PAIRS: usize = 32;
const ROWS: usize = 400;
/// How long misbehaving clients stay unless the builder closes their connection.
const STAY: Duration = Duration::from_secs(8);

/// A whole build, including the wait in the queue.
fn good(mut client: Client<TcpStream>) {
    client.send(&ClientMessage::Hello(hello(8)));
    loop {
        match client.next() {
            Some(BuilderMessage::Accept(_)) => break,
            Some(BuilderMessage::Wait(_)) => {}
            Some(BuilderMessage::Heartbeat) => client.send(&ClientMessage::Heartbeat),
            other => panic!("{other:?}"),
        }
    }
    client.index_of(&Rows::new(ROWS, 8), 50);
}

/// What the misbehaving client number `kind` does; its errors are ignored.
fn bad(kind: usize, stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = BytesMut::new();
    ClientMessage::Hello(hello(8)).encode(&mut bytes);
    let hello_only = [&MAGIC[..], &bytes].concat();
    match kind % 8 {
        // Sends nothing.
        0 => thread::sleep(STAY),
        // Sends a valid request at one byte per second.
        1 => {
            for byte in &hello_only[..STAY.as_secs() as usize] {
                stream.write_all(&[*byte])?;
                thread::sleep(Duration::from_secs(1));
            }
        }
        // Sends another protocol.
        2 => stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?,
        3 => stream.write_all(&[&MAGIC[..], &[0xff; 4000]].concat())?,
        // Announces ten billion rows.
        4 => {
            let mut bytes = BytesMut::new();
            ClientMessage::Hello(Hello { estimated_rows: 10 << 30, ..hello(8) }).encode(&mut bytes);
            stream.write_all(&[&MAGIC[..], &bytes].concat())?;
        }
        // Sends nothing after the Accept, like a host that lost power.
        5 => {
            stream.write_all(&hello_only)?;
            thread::sleep(STAY);
        }
        // Sends a frame header with an invalid length.
        6 => stream.write_all(&[&hello_only[..], &[2, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0]].concat())?,
        // Disconnects in the middle of a frame.
        _ => stream.write_all(&hello_only[..hello_only.len() - 5])?,
    }
    Ok(())
}

#[test]
fn builds_succeed_beside_as_many_misbehaving_clients() {
    let builder = Builder::with(|config| {
        config.listening.handshake_timeout = Duration::from_secs(5);
        config.listening.idle_timeout = Duration::from_secs(5);
        config.memory_limit = 512 << 20;
        config.max_builds = 8;
    });
    thread::scope(|scope| {
        for number in 0..PAIRS {
            let builder = &builder;
            scope.spawn(move || good(builder.connect()));
            scope.spawn(move || {
                let mut stream = TcpStream::connect(builder.address).unwrap();
                // The builder may close the connection at any point.
                let _ = bad(number, &mut stream);
            });
        }
    });
    builder.settle();
    assert_eq!(builder.builds("succeeded"), PAIRS as u64);
    let closed = |reason| builder.metric(&format!("lantern_index_connections_closed_total{{reason=\"{reason}\"}}"));
    let of_each_kind = PAIRS as u64 / 8;
    eventually("silent connections are closed", || closed("timeout") >= of_each_kind);
    assert!(closed("protocol") >= of_each_kind, "{}", builder.get("/metrics"));
    let refused = builder.metric("lantern_index_builds_refused_total{reason=\"memory\"}");
    assert_eq!(refused, of_each_kind, "too many rows claimed");
}

#[test]
fn silent_connections_do_not_lock_clients_out() {
    let builder = Builder::with(|config| config.listening.max_connections = 10);
    let _silent: Vec<_> = (0..30).map(|_| TcpStream::connect(builder.address).unwrap()).collect();
    for _ in 0..5 {
        good(builder.connect());
    }
    let closed = builder.metric("lantern_index_connections_closed_total{reason=\"limit\"}");
    assert!(closed >= 21, "{closed}");
}
