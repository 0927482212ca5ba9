//! Encrypted connections.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lantern_index_server::{Config, Server};
use protocol::MAGIC;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use service::{Access, DaemonError, Listening, Reload, Tls, Tokens};
use tempfile::TempDir;

use crate::support::{Builder, Client, Rows, hello};

struct Pair {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    server: Arc<Tls>,
    dir: TempDir,
}

fn pair() -> Pair {
    pair_for(None)
}

/// Certificate and key of a builder that trusts clients of an authority.
fn pair_for(client_ca: Option<&Path>) -> Pair {
    let dir = TempDir::new().unwrap();
    let (certificate, key) = write(dir.path());
    let server = Tls::open(&dir.path().join("cert.pem"), &dir.path().join("key.pem"), client_ca).unwrap();
    Pair { certificate, key, server: Arc::new(server), dir }
}

/// Makes a certificate and its key, and writes both to files.
fn write(dir: &Path) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(dir.join("cert.pem"), pair.cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    (pair.cert.der().clone(), PrivateKeyDer::Pkcs8(pair.signing_key.serialize_der().into()))
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn connect(
    builder: &Builder,
    trusted: &CertificateDer<'static>,
    version: &'static SupportedProtocolVersion,
) -> TlsStream {
    connect_as(None, builder, trusted, version)
}

fn connect_as(
    client: Option<&Pair>,
    builder: &Builder,
    trusted: &CertificateDer<'static>,
    version: &'static SupportedProtocolVersion,
) -> TlsStream {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        Some(pair) => config.with_client_auth_cert(vec![pair.certificate.clone()], pair.key.clone_key()).unwrap(),
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(builder.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

#[test]
fn a_build_over_each_version() {
    let pair = pair();
    let builder = Builder::with(|config| config.listening.access.tls = Some(pair.server.clone()));
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut client = Client::greeted(connect(&builder, &pair.certificate, version));
        client.raw(&MAGIC);
        client.hello(hello(64));
        client.rows(&Rows::new(2000, 64), 300);
        client.end_of_rows(2000);
        assert_eq!(client.pages().done.rows, 2000);
    }
}

#[test]
fn errors_arrive_over_tls() {
    let pair = pair();
    let builder = Builder::with(|config| config.listening.access.tls = Some(pair.server.clone()));
    let mut client = Client::greeted(connect(&builder, &pair.certificate, &rustls::version::TLS13));
    client.raw(&MAGIC);
    client.hello(hello(4));
    client.rows(&Rows::new(10, 4), 10);
    client.end_of_rows(11);
    assert_eq!(client.error().sqlstate.as_str(), "XX001");
}

#[test]
fn a_client_that_leaves_without_goodbye_has_left() {
    let pair = pair();
    let builder = Builder::with(|config| config.listening.access.tls = Some(pair.server.clone()));
    for ends_its_half in [true, false] {
        let mut client = Client::greeted(connect(&builder, &pair.certificate, &rustls::version::TLS13));
        client.raw(&MAGIC);
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
    let (own, other) = (pair(), pair());
    let builder = Builder::with(|config| config.listening.access.tls = Some(own.server.clone()));
    let mut stream = connect(&builder, &other.certificate, &rustls::version::TLS13);
    let error = stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn plaintext_clients_get_no_greeting() {
    let pair = pair();
    let builder = Builder::with(|config| {
        config.listening.access.tls = Some(pair.server.clone());
        config.listening.handshake_timeout = Duration::from_millis(200);
    });
    let mut stream = TcpStream::connect(builder.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    assert!(builder.get("/healthz").contains("200"));
}

#[test]
fn clients_show_a_certificate_where_that_is_wanted() {
    let client = pair();
    let own = pair_for(Some(&client.dir.path().join("cert.pem")));
    let builder = Builder::with(|config| config.listening.access.tls = Some(own.server.clone()));
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let stream = connect_as(Some(&client), &builder, &own.certificate, version);
        let mut good = Client::greeted(stream);
        good.raw(&MAGIC);
        good.hello(hello(4));
        for other in [None, Some(&pair())] {
            let mut stream = connect_as(other, &builder, &own.certificate, version);
            assert!(stream.read(&mut [0; 8]).map_or(true, |read| read == 0), "greeted without a certificate");
        }
        good.rows(&Rows::new(10, 4), 10);
        good.end_of_rows(10);
        assert_eq!(good.pages().done.rows, 10);
    }
}

#[test]
fn a_new_certificate_leaves_builds_alone() {
    let mut own = pair();
    let builder = Builder::with(|config| config.listening.access.tls = Some(own.server.clone()));
    let mut before = Client::greeted(connect(&builder, &own.certificate, &rustls::version::TLS13));
    before.raw(&MAGIC);
    before.hello(hello(4));
    let (certificate, _) = write(own.dir.path());
    own.server.reload().unwrap();
    let _ = Client::greeted(connect(&builder, &certificate, &rustls::version::TLS13));
    assert!(connect(&builder, &own.certificate, &rustls::version::TLS13).read(&mut [0; 8]).is_err());
    before.rows(&Rows::new(10, 4), 10);
    before.end_of_rows(10);
    assert_eq!(before.pages().done.rows, 10);
    own.certificate = certificate;
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
    old.rows(&Rows::new(10, 4), 10);
    old.end_of_rows(10);
    assert_eq!(old.pages().done.rows, 10);
}

#[tokio::test]
async fn other_machines_get_in_encrypted_and_known() {
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
    let error = refused(Access { tls: Some(pair().server), ..Access::default() }).await;
    assert!(matches!(error, DaemonError::Anonymous(_)), "{error}");
    let error = refused(Access { allow_anonymous: true, ..Access::default() }).await;
    assert!(matches!(error, DaemonError::Plaintext(_)), "{error}");
    assert!(bind(Access { allow_anonymous: true, ..open }).await.is_ok());
    let client = pair();
    let known = pair_for(Some(&client.dir.path().join("cert.pem")));
    assert!(bind(Access { tls: Some(known.server), ..Access::default() }).await.is_ok());
}
