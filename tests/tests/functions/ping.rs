//! `lantern_index.ping()`

use std::net::TcpListener;
use std::time::Duration;

use harness::{Builder, BuilderOptions, Session, within};

use crate::{database, failure, row};

const PING: &str =
    "SELECT address, tls, verified, builder_version, protocol, latency_ms, memory_free FROM lantern_index.ping()";

/// Address, TLS and verification of a ping; checks all other columns.
fn ping(session: &mut Session) -> [String; 3] {
    let row = row(session, PING);
    let [address, tls, verified, version, protocol, latency, memory] = row.try_into().unwrap();
    let version = version.unwrap();
    assert!(version.starts_with("lantern-index "), "{version}");
    assert_eq!(protocol.unwrap(), "2");
    let latency: f64 = latency.unwrap().parse().unwrap();
    assert!(latency > 0.0 && latency < 10_000.0, "{latency} ms");
    let memory: u64 = memory.unwrap().parse().unwrap();
    assert!(memory > 1 << 20, "{memory} bytes free");
    [address.unwrap(), tls.unwrap(), verified.unwrap()]
}

#[test]
fn a_ping_reports_tls_and_verification() {
    let mut session = database("ping");
    let plain = Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::default() }).unwrap();
    plain.attach(&mut session).unwrap();
    assert_eq!(ping(&mut session), [plain.address().to_string(), "off".into(), "f".into()]);

    let encrypted = Builder::start().unwrap();
    encrypted.attach(&mut session).unwrap();
    assert_eq!(ping(&mut session), [encrypted.address().to_string(), "TLSv1.3".into(), "f".into()]);
    let root = encrypted.certificate().display().to_string();
    session.execute(&format!("SET hnsw.external_index_sslrootcert = '{root}'")).unwrap();
    assert_eq!(ping(&mut session)[1..], ["TLSv1.3", "t"]);
    session.execute("SET hnsw.external_index_sslmode = 'verify-full'").unwrap();
    assert_eq!(ping(&mut session)[1..], ["TLSv1.3", "t"]);
    for builder in [plain, encrypted] {
        assert_eq!(builder.metric("lantern_index_builds_total").unwrap(), 0.0, "a ping is no build");
    }
}

#[test]
fn a_ping_fails_without_a_trusted_builder_that_answers() {
    let mut session = database("ping_nobody");
    let builder = Builder::start().unwrap();
    // A builder whose certificate is not trusted.
    let stranger = Builder::start().unwrap();
    builder.attach(&mut session).unwrap();
    let root = stranger.certificate().display().to_string();
    session.execute(&format!("SET hnsw.external_index_sslrootcert = '{root}'")).unwrap();
    assert_eq!(failure(&mut session, PING).0, "08006");
    session.execute("RESET hnsw.external_index_sslrootcert").unwrap();
    drop(builder);
    assert_eq!(failure(&mut session, PING).0, "08001");

    // A program that listens and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    session
        .execute(&format!(
            "SET hnsw.external_index_port = {port}; SET hnsw.external_index_secure = off; \
             SET hnsw.external_index_connect_timeout = 1"
        ))
        .unwrap();
    let (code, _) = within("the refusal", Duration::from_secs(30), || failure(&mut session, PING));
    assert_eq!(code, "08006");
    // Cancellation does not wait for the timeout.
    session.execute("SET hnsw.external_index_connect_timeout = 60; SET statement_timeout = 300").unwrap();
    let (code, _) = within("the cancellation", Duration::from_secs(30), || failure(&mut session, PING));
    assert_eq!(code, "57014");
}
