//! The program's commands, as a user runs them.

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use protocol::{ClientMessage, Hello, MAGIC, Metric, ValueType};
use rustix::process::Signal;
use support::{Daemon, command, get, run, said};
use tempfile::TempDir;

#[test]
fn a_signal_ends_the_daemon_with_exit_code_0() {
    let dir = TempDir::new().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&[], dir.path());
        let mut greeting = [0; 8];
        TcpStream::connect(&daemon.address).unwrap().read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, [1, 0, 0, 0, 1, 0, 0, 0]);
        assert!(is_ready(&daemon));
        daemon.signal(signal);
        assert!(ends(&mut daemon));
        assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let dir = TempDir::new().unwrap();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut daemon = Daemon::with(&[], dir.path(), |command| _ = command.stderr(full()));
    daemon.connect().small_build();
    daemon.signal(Signal::HUP);
    assert!(is_ready(&daemon));
    daemon.connect().small_build();
    daemon.signal(Signal::TERM);
    assert!(ends(&mut daemon));
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    let failed = command().args(["serve", "--cert", "none.pem"]).stderr(full()).status().unwrap();
    assert_eq!(failed.code(), Some(64));
}

/// Asks for a build, and returns the kind of the answer.
fn begin(client: &mut TcpStream) -> u8 {
    let hello = ClientMessage::Hello(Hello::new(ValueType::Vector, Metric::L2, 3));
    let mut bytes = BytesMut::from(&MAGIC[..]);
    hello.encode(&mut bytes);
    client.write_all(&bytes).unwrap();
    let mut kind = [0];
    client.read_exact(&mut kind).unwrap();
    kind[0]
}

/// Whether the daemon's status port answers that it takes builds.
fn is_ready(daemon: &Daemon) -> bool {
    get(&daemon.status, "/readyz").starts_with("HTTP/1.1 200")
}

/// Whether the process ends within the time limit.
fn ends(daemon: &mut Daemon) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        if daemon.child.try_wait().unwrap().is_some() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_second_signal_ends_builds_too() {
    let dir = TempDir::new().unwrap();
    let mut daemon = Daemon::start(&["--drain-timeout", "1h"], dir.path());
    let mut client = TcpStream::connect(&daemon.address).unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
    assert_eq!(begin(&mut client), protocol::kind::ACCEPT);
    // Signals at the same time count as one. A stopped daemon gets them only together.
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        daemon.signal(signal);
    }
    while is_ready(&daemon) {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(500));
    assert!(daemon.child.try_wait().unwrap().is_none(), "the build is given its time");
    daemon.signal(Signal::TERM);
    assert!(ends(&mut daemon), "the second signal has no effect");
}

#[test]
fn clients_are_accepted_during_the_shutdown_delay() {
    let dir = TempDir::new().unwrap();
    let mut daemon = Daemon::start(&["--shutdown-delay", "1h"], dir.path());
    daemon.signal(Signal::TERM);
    while is_ready(&daemon) {
        thread::sleep(Duration::from_millis(10));
    }
    // A load balancer that has not checked /readyz since still sends clients.
    let mut greeting = [0; 8];
    let mut client = TcpStream::connect(&daemon.address).unwrap();
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, [1, 0, 0, 0, 1, 0, 0, 0]);
    let accepted = begin(&mut client);
    assert_eq!(accepted, protocol::kind::ACCEPT, "a build is taken");
    thread::sleep(Duration::from_millis(200));
    daemon.signal(Signal::TERM);
    assert!(ends(&mut daemon));
}

#[test]
fn gen_cert_makes_a_certificate_that_serve_accepts() {
    let dir = TempDir::new().unwrap();
    let output = run(&["gen-cert", "--host", "builder.example", "--host", "10.1.2.3"], dir.path());
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    // Steps in an order that works: before the library is preloaded, PostgreSQL accepts settings of hnsw only in its file.
    let mut rest = &*text;
    for step in [
        "lantern-index token new NAME",
        "lantern-index serve --cert '",
        "--token-file TOKENS",
        "shared_preload_libraries = 'lantern_index'",
        "hnsw.external_index_host = 'builder.example'",
        "hnsw.external_index_sslmode = 'verify-full'",
        "hnsw.external_index_sslrootcert = '",
        "hnsw.external_index_token_file = '",
    ] {
        let at = rest.find(step).unwrap_or_else(|| panic!("{step:?} is missing or too early in\n{text}"));
        rest = &rest[at..];
    }
    assert!(!text.contains("ALTER SYSTEM"), "{text}");
    let key = dir.path().join("key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let daemon = Daemon::start(
        &["--cert", "cert.pem", "--key", "key.pem", "--host", "0.0.0.0", "--allow-anonymous"],
        dir.path(),
    );
    assert!(daemon.address.starts_with("0.0.0.0:") && daemon.status.starts_with("0.0.0.0:"));

    let first = fs::read(&key).unwrap();
    let again = run(&["gen-cert"], dir.path());
    assert_eq!(again.status.code(), Some(64), "{}", said(&again));
    assert!(said(&again).contains("cert.pem exists; --force replaces it"), "{}", said(&again));
    assert!(run(&["gen-cert", "--keep"], dir.path()).status.success());
    assert_eq!(fs::read(&key).unwrap(), first);
    let local = run(&["gen-cert", "--force", "--days", "3"], dir.path());
    assert!(local.status.success() && said(&local).contains("sslmode = 'verify-full'"), "{}", said(&local));
    assert!(!said(&local).contains("token"), "on loopback no token is needed: {}", said(&local));
    assert_ne!(fs::read(&key).unwrap(), first);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let named = run(&["gen-cert", "--cert", "a", "--key", "b"], dir.path());
    assert!(named.status.success() && dir.path().join("b").exists());
    // If one file cannot be written, both stay as they were.
    let before = fs::read(dir.path().join("b")).unwrap();
    for (cert, key) in [("a/no-folder", "b"), (".", "b"), ("a/no-folder", "c")] {
        let failed = run(&["gen-cert", "--force", "--cert", cert, "--key", key], dir.path());
        assert!(!failed.status.success(), "{}", said(&failed));
    }
    assert!(run(&["gen-cert", "--cert", "tls.crt", "--key", "tls.key"], dir.path()).status.success());
    assert_eq!(fs::read(dir.path().join("b")).unwrap(), before);
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| name != "c" && !name.ends_with(".tmp")));
}

#[test]
fn gen_cert_makes_a_client_certificate() {
    let dir = TempDir::new().unwrap();
    let output = run(&["gen-cert", "--client"], dir.path());
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("--client-ca '") && text.contains("hnsw.external_index_sslkey = '"), "{text}");
    assert!(text.contains("shared_preload_libraries") && !text.contains("ALTER SYSTEM"), "{text}");
    let key = dir.path().join("client-key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    // The client's certificate is made beside the builder's own files.
    assert!(run(&["gen-cert"], dir.path()).status.success());
    Daemon::start(&["--cert", "cert.pem", "--key", "key.pem", "--client-ca", "client.pem"], dir.path());
    assert_eq!(run(&["gen-cert", "--client", "--host", "x"], dir.path()).status.code(), Some(64));
}

#[test]
fn invalid_settings_have_exit_code_64() {
    let dir = TempDir::new().unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&["serve", "--cert", "cert.pem"], "--key"),
        (&["serve", "--cert", "absent.pem", "--key", "absent.pem"], "absent.pem"),
        (&["serve", "--host", "0.0.0.0", "--port", "0", "--status-port", "0"], "not encrypted"),
        (&["serve", "--log-level", "lots=of=noise"], "log level"),
        (&["serve", "--log-format", "xml"], "xml"),
        (&["serve", "--engine", "steam"], "steam"),
        (&["gen-cert", "--host", "not a name"], "not a name"),
        (&["inspect", "absent"], "absent"),
    ];
    for (arguments, text) in cases {
        let output = run(arguments, dir.path());
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(text), "{arguments:?}: {}", said(&output));
    }
    assert_eq!(run(&["--version"], dir.path()).status.code(), Some(0));
}

#[test]
fn a_port_in_use_has_exit_code_1() {
    let dir = TempDir::new().unwrap();
    let daemon = Daemon::start(&[], dir.path());
    let port = daemon.address.rsplit(':').next().unwrap();
    let output = run(&["serve", "--port", port, "--status-port", "0"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&format!("cannot listen on 127.0.0.1:{port}")), "{}", said(&output));
}

/// pgvector's index of three rows.
fn index() -> Vec<u8> {
    let mut bytes = vec![0; 2 * 8192];
    for line in include_str!("../../pages/tests/t3.hex").lines().filter(|line| !line.starts_with('#')) {
        let (offset, row) = line.split_once("  ").unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (at, byte) in row.split(' ').enumerate() {
            bytes[offset + at] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes
}

#[test]
fn an_index_is_inspected() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("index"), index()).unwrap();
    let output = run(&["inspect", "index"], dir.path());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).ends_with("result      0 errors, 0 warnings\n"), "{:?}", said(&output));
    // Damage the magic number of the meta page; the other pages still belong to an index.
    let mut damaged = index();
    damaged[24] ^= 1;
    fs::write(dir.path().join("index"), damaged).unwrap();
    let output = run(&["inspect", "index"], dir.path());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("errors, 0 warnings\nlantern-index: index has "), "{}", said(&output));
}

#[test]
fn files_that_are_no_hnsw_index_have_exit_code_64() {
    let dir = TempDir::new().unwrap();
    // Pages of a btree index: PostgreSQL's page header, with a special area of 16 bytes.
    let mut page = vec![0; 8192];
    page[12..20].copy_from_slice(&[24, 0, 0xf0, 0x1f, 0xf0, 0x1f, 4, 0x20]);
    fs::write(dir.path().join("btree"), page.repeat(100)).unwrap();
    fs::write(dir.path().join("zeros"), [0; 16_384]).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    for (file, problem) in
        [("btree", "block 0: special is 0x1ff0"), ("zeros", "block 0: all zero"), ("empty", "the file is empty")]
    {
        let output = run(&["inspect", file], dir.path());
        assert_eq!(output.status.code(), Some(64), "{}", said(&output));
        let text = said(&output);
        assert!(text.starts_with(&format!("lantern-index: {file} is not an hnsw index: {problem}")), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn with_json_logs_every_line_on_stderr_is_an_object() {
    let dir = TempDir::new().unwrap();
    let mut daemon = Daemon::start(&["--log-format", "json"], dir.path());
    daemon.connect().small_build();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    let log = daemon.log();
    assert!(log.lines().count() >= 3, "{log}");
    for line in log.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object()), "{line}");
    }
}

#[test]
fn metrics_of_maintain_can_be_read_by_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("metrics.prom");
    // There is no server, which the metrics count as an error. The umask is that of the systemd unit.
    let dsn = format!("host={} user=a dbname=b", dir.path().display());
    let script = "umask 077; exec \"$0\" maintain \"$1\" --textfile \"$2\"";
    let output =
        Command::new("sh").args(["-c", script]).arg(command().get_program()).arg(dsn).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(fs::read_to_string(&path).unwrap().contains("lantern_index_maintain_errors 1\n"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the file that was written first has been renamed");
}
