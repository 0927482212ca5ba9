use std::error::Error as _;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use trust::Verifier;

use crate::dsn::{Dsn, SslMode};
use crate::error::Error;

/// The driver's TLS connector.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    /// Whether the server has agreed to a handshake.
    begun: Arc<AtomicBool>,
}

/// A handshake failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Failure(io::Error);

impl Tls {
    /// Whether the server has agreed to a handshake since the last call.
    pub(crate) fn take_begun(&self) -> bool {
        self.begun.swap(false, Ordering::Relaxed)
    }

    /// Whether a connection failed in the handshake.
    pub(crate) fn is_failure(error: &tokio_postgres::Error) -> bool {
        error.source().is_some_and(|source| source.is::<Failure>())
    }

    /// Follows `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.
    pub(crate) fn new(dsn: &Dsn) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let mode = dsn.sslmode()?;
        // Files are read only if they are needed. As in libpq, certificates are not verified without `sslrootcert`.
        let file = |key| dsn.get(key).filter(|_| mode != SslMode::Disable);
        let verifier = match file("sslrootcert") {
            Some("system") => {
                let words = "sslrootcert \"system\" is not supported: name the file with the system's certificates";
                return Err(Error::Dsn(words.to_owned()));
            }
            None if matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull) => {
                return Err(Error::Dsn("verify-ca and verify-full need an sslrootcert".to_owned()));
            }
            None => Verifier::of_any(provider.clone()),
            Some(path) => {
                let roots = certificates(path)?;
                let name = mode == SslMode::VerifyFull;
                Verifier::of_roots(roots, name, provider.clone()).map_err(|error| unreadable(path, &error))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Dsn(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (file("sslcert"), file("sslkey")) {
            (Some(cert), Some(key)) => match with_certificate(builder.clone(), cert, key) {
                // libpq would connect without TLS; this connection only does without a client certificate.
                Err(_) if mode == SslMode::Prefer && dsn.has_default_pair() => builder.with_no_client_auth(),
                config => config?,
            },
            (Some(_), None) => return Err(Error::Dsn("sslcert needs an sslkey".to_owned())),
            (None, _) => builder.with_no_client_auth(),
        };
        Ok(Self { config: Arc::new(config), begun: Arc::default() })
    }
}

fn with_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    cert: &str,
    key: &str,
) -> Result<ClientConfig, Error> {
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    builder.with_client_auth_cert(certificates(cert)?, key).map_err(|error| unreadable(cert, &error))
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_file_iter(path).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    found.map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &str, reason: &dyn std::fmt::Display) -> Error {
    Error::File { path: path.to_owned(), reason: reason.to_string() }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connect, io::Error> {
        // A Unix socket has no host name; the handshake is never made there, but needs a valid name.
        let domain = if domain.is_empty() { "localhost" } else { domain };
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(Connect { tls: self.clone(), name })
    }
}

/// A TLS handshake for one connection.
pub(crate) struct Connect {
    tls: Tls,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Connect {
    type Stream = Stream;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failure>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        self.tls.begun.store(true, Ordering::Relaxed);
        Box::pin(async move {
            TlsConnector::from(self.tls.config).connect(self.name, stream).await.map(Stream).map_err(Failure)
        })
    }
}

/// An encrypted connection.
pub(crate) struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
