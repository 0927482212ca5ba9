//! The binary as a user runs it.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use rustix::process::Signal;
use support::{Daemon, command};
use tempfile::TempDir;

fn run(arguments: &[&str], dir: &Path) -> Output {
    command().args(arguments).current_dir(dir).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn serves_until_a_signal() {
    let dir = TempDir::new().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&[], dir.path());
        let mut greeting = [0; 8];
        TcpStream::connect(&daemon.address).unwrap().read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, [1, 0, 0, 0, 1, 0, 0, 0]);
        let mut status = TcpStream::connect(&daemon.status).unwrap();
        status.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        status.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        daemon.signal(signal);
        assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn makes_a_certificate_and_serves_with_it() {
    let dir = TempDir::new().unwrap();
    let output = run(&["gen-cert", "--host", "builder.example", "--host", "10.1.2.3"], dir.path());
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("lantern-index serve --cert '") && text.contains("psql "), "{text}");
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
    assert!(run(&["gen-cert", "--force", "--days", "3"], dir.path()).status.success());
    assert_ne!(fs::read(&key).unwrap(), first);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let named = run(&["gen-cert", "--cert", "a", "--key", "b"], dir.path());
    assert!(named.status.success() && dir.path().join("b").exists());
}

#[test]
fn makes_a_certificate_for_a_client() {
    let dir = TempDir::new().unwrap();
    let output = run(&["gen-cert", "--client"], dir.path());
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("--client-ca '") && text.contains("hnsw.external_index_sslkey"), "{text}");
    let key = dir.path().join("client-key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    // The builder's own lie beside it, and it takes the client's.
    assert!(run(&["gen-cert"], dir.path()).status.success());
    Daemon::start(&["--cert", "cert.pem", "--key", "key.pem", "--client-ca", "client.pem"], dir.path());
    assert_eq!(run(&["gen-cert", "--client", "--host", "x"], dir.path()).status.code(), Some(64));
}

#[test]
fn settings_that_cannot_work() {
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
fn a_port_in_use_is_a_failure() {
    let dir = TempDir::new().unwrap();
    let daemon = Daemon::start(&[], dir.path());
    let port = daemon.address.rsplit(':').next().unwrap();
    let output = run(&["serve", "--port", port, "--status-port", "0"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&format!("cannot listen on 127.0.0.1:{port}")), "{}", said(&output));
}

#[test]
fn a_file_that_is_no_index() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("zeros"), [0; 16_384]).unwrap();
    let output = run(&["inspect", "zeros"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("error"), "{}", said(&output));
}
