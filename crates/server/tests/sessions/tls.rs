//! Encrypted connections.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use lantern_index_server::{Config, Server};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, StreamOwned};
use service::{Access, DaemonError, Listening, Reload, Tokens};

use crate::support::{Builder, Client, Pair, Rows, encrypted, hello};

/// A builder with this certificate.
fn builder(pair: &Pair) -> Builder {
    Builder::with(|config| config.listening.access.tls = Some(pair.tls(None)))
}

fn connect(builder: &Builder, trusted: &Pair) -> StreamOwned<ClientConnection, TcpStream> {
    encrypted(builder.address, &trusted.certificate, None, &TLS13)
}

#[test]
fn builds_succeed_over_tls_1_2_and_1_3() {
    let pair = Pair::new();
    let builder = builder(&pair);
    for version in [&TLS13, &TLS12] {
        let mut client = Client::opened(encrypted(builder.address, &pair.certificate, None, version));
        client.hello(hello(64));
        client.index_of(&Rows::new(2000, 64), 300);
    }
}

#[test]
fn errors_arrive_over_tls() {
    let pair = Pair::new();
    let builder = builder(&pair);
    let mut client = Client::opened(connect(&builder, &pair));
    client.hello(hello(4));
    client.rows(&Rows::new(10, 4), 10);
    client.end_of_rows(11);
    assert_eq!(client.error().sqlstate.as_str(), "XX001");
}

#[test]
fn a_client_that_does_not_close_tls_counts_as_left() {
    let pair = Pair::new();
    let builder = builder(&pair);
    for ends_its_half in [true, false] {
        let mut client = Client::opened(connect(&builder, &pair));
        client.hello(hello(4));
        client.rows(&Rows::new(1000, 4), 100);
        if ends_its_half {
            // Ends the stream without closing TLS.
            client.stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
            builder.settle();
        }
        // Most likely bytes are unread, so that the connection is reset.
        drop(client);
        builder.settle();
        let answer = builder.get("/status");
        let report: service::report::Report = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let last = &report.ended[0];
        assert_eq!((last.outcome, last.reason.as_deref()), (service::Outcome::Cancelled, Some("client left")));
    }
}

#[test]
fn another_certificate_is_not_trusted() {
    let (own, other) = (Pair::new(), Pair::new());
    let builder = builder(&own);
    let mut stream = connect(&builder, &other);
    let error = stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn plaintext_clients_get_no_greeting() {
    let pair = Pair::new();
    let builder = Builder::with(|config| {
        config.listening.access.tls = Some(pair.tls(None));
        config.listening.handshake_timeout = Duration::from_millis(200);
    });
    let mut stream = TcpStream::connect(builder.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    assert!(builder.get("/healthz").contains("200"));
}

#[test]
fn a_client_ca_makes_client_certificates_mandatory() {
    let (own, client) = (Pair::new(), Pair::new());
    let builder = Builder::with(|config| config.listening.access.tls = Some(own.tls(Some(&client.cert()))));
    for version in [&TLS13, &TLS12] {
        let connect_as = |client| encrypted(builder.address, &own.certificate, client, version);
        let mut good = Client::opened(connect_as(Some(&client)));
        good.hello(hello(4));
        for other in [None, Some(&Pair::new())] {
            let read = connect_as(other).read(&mut [0; 8]);
            assert!(read.map_or(true, |read| read == 0), "greeted without a certificate");
        }
        good.index_of(&Rows::new(10, 4), 10);
    }
}

#[test]
fn a_reloaded_certificate_does_not_affect_running_builds() {
    let own = Pair::new();
    let tls = own.tls(None);
    let builder = Builder::with(|config| config.listening.access.tls = Some(tls.clone()));
    let mut before = Client::opened(connect(&builder, &own));
    before.hello(hello(4));
    let certificate = own.renew_files();
    tls.reload().unwrap();
    let _ = Client::greeted(encrypted(builder.address, &certificate, None, &TLS13));
    assert!(connect(&builder, &own).read(&mut [0; 8]).is_err());
    before.index_of(&Rows::new(10, 4), 10);
}

#[test]
fn tokens_can_be_replaced() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "the-old-secret-of-all\n").unwrap();
    let tokens = Arc::new(Tokens::open(file.path()).unwrap());
    let builder = Builder::with(|config| config.listening.access.tokens = Some(tokens.clone()));
    let with = |token: &str| protocol::Hello { token: token.to_owned(), ..hello(4) };
    let mut old = builder.connect();
    old.hello(with("the-old-secret-of-all"));
    for (token, expected) in
        [("", "this builder wants a token"), ("the-new-secret-of-all", "the token is not one of this builder's")]
    {
        let refuse = builder.connect().refused(with(token));
        assert_eq!((refuse.report.sqlstate.as_str(), refuse.report.message.as_str()), ("28000", expected));
    }
    fs::write(file.path(), "the-new-secret-of-all\n").unwrap();
    tokens.reload().unwrap();
    builder.connect().hello(with("the-new-secret-of-all"));
    assert_eq!(builder.connect().refused(with("the-old-secret-of-all")).report.sqlstate.as_str(), "28000");
    old.index_of(&Rows::new(10, 4), 10);
}

#[tokio::test]
async fn listening_beyond_loopback_needs_tls_and_authentication() {
    let bind = |access| {
        let listening =
            Listening { host: "0.0.0.0".to_owned(), port: 0, status_port: 0, access, ..Listening::default() };
        Server::bind(Config { listening, threads: 1, ..Config::default() })
    };
    let refused = async |access| bind(access).await.err().expect("must not listen");
    let error = refused(Access::default()).await;
    assert!(matches!(error, DaemonError::Plaintext(_)), "{error}");
    let open = Access { allow_plaintext_beyond_loopback: true, ..Access::default() };
    let error = refused(open.clone()).await;
    assert!(matches!(error, DaemonError::Anonymous(_)), "{error}");
    let error = refused(Access { tls: Some(Pair::new().tls(None)), ..Access::default() }).await;
    assert!(matches!(error, DaemonError::Anonymous(_)), "{error}");
    let error = refused(Access { allow_anonymous: true, ..Access::default() }).await;
    assert!(matches!(error, DaemonError::Plaintext(_)), "{error}");
    assert!(bind(Access { allow_anonymous: true, ..open }).await.is_ok());
    let known = Pair::new().tls(Some(&Pair::new().cert()));
    assert!(bind(Access { tls: Some(known), ..Access::default() }).await.is_ok());
}
