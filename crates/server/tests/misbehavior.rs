//! Misbehaving clients, and the builder's log lines about them, while a good build runs on.

mod support;

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use protocol::{ClientMessage, Hello, MAGIC};
use service::Tokens;
use support::{Builder, Pair, Rows, encrypted, eventually, hello, run_in_namespace};
use tracing_subscriber::fmt::MakeWriter;

const TOKEN: &str = "a-secret-of-these-tests";

/// The builders' time limits in seconds. A good build keeps to them even on a busy machine.
const LIMIT: u64 = 3;

/// The log of all builders of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).init();
    log
});

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Waits for a line with all these words about the connection from `peer`.
fn expect_line(stream: &TcpStream, words: &[&str]) {
    let peer = format!("peer={}", stream.local_addr().unwrap());
    let found = || {
        let text = String::from_utf8_lossy(&LOG.0.lock().unwrap()).into_owned();
        text.lines().any(|line| line.contains(&peer) && words.iter().all(|&word| line.contains(word)))
    };
    eventually(&format!("a line with {words:?} and {peer}"), found);
}

/// A builder with short time limits that requires a token.
fn builder(change: impl FnOnce(&mut lantern_index_server::Config)) -> Builder {
    LazyLock::force(&LOG);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("{TOKEN}\n")).unwrap();
    let tokens = Arc::new(Tokens::open(file.path()).unwrap());
    Builder::with(|config| {
        config.listening.handshake_timeout = Duration::from_secs(LIMIT);
        config.listening.idle_timeout = Duration::from_secs(LIMIT);
        config.memory_limit = 512 << 20;
        config.listening.access.tokens = Some(tokens);
        change(config);
    })
}

fn known(dims: u32) -> Hello {
    Hello { token: TOKEN.to_owned(), ..hello(dims) }
}

/// A build that runs while `work` does, and must not be disturbed by it.
fn beside_a_good_build(builder: &Builder, work: impl FnOnce()) {
    let mut good = builder.connect();
    good.hello(known(8));
    let rows = Rows::new(300, 8);
    thread::scope(|scope| {
        let (finish, finished) = channel::<()>();
        let build = scope.spawn(move || {
            let mut sent = 0;
            loop {
                good.rows(&rows, 100);
                sent += rows.len() as u64;
                if finished.recv_timeout(Duration::from_millis(100)) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            good.end_of_rows(sent);
            assert_eq!(good.pages().done.rows, sent);
        });
        work();
        drop(finish);
        build.join().unwrap();
    });
}

#[test]
fn connections_without_a_request_are_closed_and_logged() {
    let builder = builder(|_| {});
    beside_a_good_build(&builder, || {
        let connect = || TcpStream::connect(builder.address).unwrap();
        let silent = connect();
        let mut slow = connect();
        let mut garbage = connect();
        garbage.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut noise = connect();
        noise.write_all(&[&MAGIC[..], &[0xff; 4000]].concat()).unwrap();
        slow.write_all(&MAGIC).unwrap();
        // One byte at a time, each of them within the idle timeout.
        let mut bytes = BytesMut::new();
        ClientMessage::Hello(known(8)).encode(&mut bytes);
        for byte in &bytes[..11] {
            if slow.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(300));
        }
        expect_line(&silent, &["no choice of protocol", &format!("nothing received for {LIMIT} s")]);
        expect_line(&slow, &[&format!("no Hello within {LIMIT} s")]);
        expect_line(&garbage, &["no known protocol"]);
        expect_line(&noise, &["connection closed", "protocol"]);
    });
}

#[test]
fn refused_clients_are_logged() {
    let builder = builder(|_| {});
    beside_a_good_build(&builder, || {
        let mut wrong = builder.connect();
        let refuse = wrong.refused(Hello { token: "another-secret-altogether".to_owned(), ..hello(8) });
        assert_eq!(refuse.report.sqlstate.as_str(), "28000");
        expect_line(&wrong.stream, &["WARN", "build refused", "the token is not one of this builder's"]);
        let mut greedy = builder.connect();
        let refuse = greedy.refused(Hello { estimated_rows: 10_000_000_000, ..known(8) });
        assert_eq!(refuse.report.sqlstate.as_str(), "53200");
        expect_line(&greedy.stream, &["WARN", "build refused", "10000000000 rows"]);
    });
}

#[test]
fn clients_without_certificate_or_tls_are_logged() {
    let pair = Pair::new();
    let builder = builder(|config| config.listening.access.tls = Some(pair.tls(Some(&pair.cert()))));
    let mut stranger = encrypted(builder.address, &pair.certificate, None, &rustls::version::TLS13);
    let error = stranger.read(&mut [0; 8]).unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    expect_line(&stranger.sock, &["no TLS handshake", "no certificates"]);
    // A client that does not speak TLS.
    let mut plain = TcpStream::connect(builder.address).unwrap();
    plain.write_all(&[0; 100]).unwrap();
    expect_line(&plain, &["no TLS handshake"]);
}

#[test]
fn a_silent_client_s_build_ends_and_is_logged() {
    let builder = builder(|_| {});
    beside_a_good_build(&builder, || {
        let mut silent = builder.connect();
        silent.hello(known(8));
        expect_line(&silent.stream, &["build ended early", &format!("client sent nothing for {LIMIT} s")]);
    });
    builder.settle();
    assert_eq!((builder.builds("succeeded"), builder.builds("cancelled")), (1, 1));
}

/// Runs in its own network namespace, where traffic can be blocked; see below.
#[test]
#[ignore = "a part of the next one"]
fn a_vanished_peer_s_build_is_cancelled_inside() {
    let network = |state: &str| {
        assert!(Command::new("ip").args(["link", "set", "lo", state]).status().unwrap().success());
    };
    network("up");
    let builder = builder(|_| {});
    let mut sending = builder.connect();
    sending.hello(known(8));
    sending.rows(&Rows::new(300, 8), 100);
    // The builder has received all rows of this client, and has much to send.
    let mut reading = builder.connect();
    let large = Hello { m: 2, ef_construction: 4, ..known(1900) };
    reading.hello(large);
    reading.rows(&Rows::new(1200, 1900), 100);
    reading.end_of_rows(1200);
    while !matches!(reading.news(), Some(protocol::BuilderMessage::Layout(_))) {}
    let since = Instant::now();
    network("down");
    expect_line(&sending.stream, &["build ended early", &format!("client sent nothing for {LIMIT} s")]);
    expect_line(&reading.stream, &["build ended early"]);
    println!("noticed after {} ms", since.elapsed().as_millis());
    network("up");
    builder.settle();
    assert_eq!(builder.builds("cancelled"), 2);
    // A reachable client is still served.
    let mut good = builder.connect();
    good.hello(known(8));
    good.index_of(&Rows::new(300, 8), 100);
}

#[test]
fn a_vanished_peer_s_build_is_cancelled() {
    run_in_namespace("--net", &["ip", "link", "set", "lo", "up"], "a_vanished_peer_s_build_is_cancelled_inside");
}
