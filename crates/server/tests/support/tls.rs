use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use service::Tls;
use tempfile::TempDir;

use super::connect;

/// A certificate and its key, as files too.
pub struct Pair {
    pub certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    dir: TempDir,
}

impl Pair {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let (certificate, key) = write(dir.path());
        Self { certificate, key, dir }
    }

    /// The certificate's file.
    pub fn cert(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    /// The configuration of a builder with this pair, and with the authority of its clients.
    pub fn tls(&self, client_ca: Option<&Path>) -> Arc<Tls> {
        Arc::new(Tls::open(&self.cert(), &self.dir.path().join("key.pem"), client_ca).unwrap())
    }

    /// Replaces the files; returns the new certificate.
    pub fn renew_files(&self) -> CertificateDer<'static> {
        write(self.dir.path()).0
    }
}

/// Makes a certificate and its key, and writes both to files.
fn write(dir: &Path) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(dir.join("cert.pem"), pair.cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    (pair.cert.der().clone(), PrivateKeyDer::Pkcs8(pair.signing_key.serialize_der().into()))
}

/// An encrypted connection of a client that trusts this certificate, and shows its own if it has a pair.
pub fn encrypted(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    client: Option<&Pair>,
    version: &'static SupportedProtocolVersion,
) -> StreamOwned<ClientConnection, TcpStream> {
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
    let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
    StreamOwned::new(connection, connect(address))
}
