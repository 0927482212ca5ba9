//! Connections that are encrypted.

mod support;

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use lantern_index_server::{Config, Server, ServerError};
use protocol::MAGIC;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use support::{Builder, Client, Rows, hello};
use tempfile::TempDir;

struct Pair {
    certificate: CertificateDer<'static>,
    server: Arc<rustls::ServerConfig>,
}

fn pair() -> Pair {
    let dir = TempDir::new().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(&cert, pair.cert.pem()).unwrap();
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    Pair { certificate: pair.cert.der().clone(), server: service::server_config(&cert, &key).unwrap() }
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn connect(
    builder: &Builder,
    trusted: &CertificateDer<'static>,
    version: &'static SupportedProtocolVersion,
) -> TlsStream {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(builder.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

#[test]
fn a_build_over_each_version() {
    let pair = pair();
    let builder = Builder::with(|config| config.tls = Some(pair.server.clone()));
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
    let builder = Builder::with(|config| config.tls = Some(pair.server.clone()));
    let mut client = Client::greeted(connect(&builder, &pair.certificate, &rustls::version::TLS13));
    client.raw(&MAGIC);
    client.hello(hello(4));
    client.rows(&Rows::new(10, 4), 10);
    client.end_of_rows(11);
    assert_eq!(client.error().sqlstate.as_str(), "XX001");
}

#[test]
fn another_certificate_is_not_trusted() {
    let (own, other) = (pair(), pair());
    let builder = Builder::with(|config| config.tls = Some(own.server.clone()));
    let mut stream = connect(&builder, &other.certificate, &rustls::version::TLS13);
    let error = stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn plaintext_clients_get_no_greeting() {
    let pair = pair();
    let builder = Builder::with(|config| {
        config.tls = Some(pair.server.clone());
        config.handshake_timeout = Duration::from_millis(200);
    });
    let mut stream = TcpStream::connect(builder.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    assert!(builder.get("/healthz").contains("200"));
}

#[tokio::test]
async fn plaintext_stays_on_loopback() {
    let config = || Config { host: "0.0.0.0".to_owned(), port: 0, status_port: 0, threads: 1, ..Config::default() };
    let refused = Server::bind(config()).await.err().expect("must not listen");
    assert!(matches!(refused, ServerError::Plaintext(_)), "{refused}");
    let asked = Config { allow_plaintext_beyond_loopback: true, ..config() };
    assert!(Server::bind(asked).await.is_ok());
    assert!(Server::bind(Config { tls: Some(pair().server), ..config() }).await.is_ok());
}
