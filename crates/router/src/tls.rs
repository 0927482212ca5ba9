use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use thiserror::Error;

/// Why builders cannot be told from others.
#[derive(Debug, Error)]
pub enum BuilderTlsError {
    /// The file cannot be read or is not PEM.
    #[error("cannot read certificates from {path}: {problem}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Not a name that a certificate can have.
    #[error("{0:?} is not a name that a certificate can be for")]
    Name(String),
    /// rustls refuses.
    #[error("cannot set TLS up")]
    Rejected(#[from] rustls::Error),
}

/// How the router knows a builder by its certificate.
#[derive(Clone, Debug)]
pub struct BuilderTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl BuilderTls {
    /// Builders show exactly the certificate in `file`, the first if there are several: the router's own.
    ///
    /// # Errors
    /// [`BuilderTlsError`]
    pub fn pinned(file: &Path) -> Result<Self, BuilderTlsError> {
        let expected = read(file)?.swap_remove(0);
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Pinned { expected, provider: provider.clone() });
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        // Nobody looks at the name.
        let name = ServerName::try_from("localhost").map_err(|_| BuilderTlsError::Name("localhost".to_owned()))?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// Builders show a certificate for `name` that one in `file` vouches for.
    ///
    /// # Errors
    /// [`BuilderTlsError`]
    pub fn authority(file: &Path, name: &str) -> Result<Self, BuilderTlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in read(file)? {
            roots.add(certificate)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).map_err(|_| BuilderTlsError::Name(name.to_owned()))?;
        Ok(Self { config: Arc::new(config), name })
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, BuilderTlsError> {
    let problem = |problem: String| BuilderTlsError::Read { path: path.to_owned(), problem };
    let text = fs::read(path).map_err(|error: io::Error| problem(error.to_string()))?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| problem(error.to_string()))?;
    if all.is_empty() { Err(problem("it holds none".to_owned())) } else { Ok(all) }
}

/// Takes one certificate, whatever its names and dates: whoever has its key is a builder.
#[derive(Debug)]
struct Pinned {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
