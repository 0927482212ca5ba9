use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use service::Reload;
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
#[derive(Debug)]
pub struct BuilderTls {
    file: PathBuf,
    /// With it the file holds authorities, without it the router's own certificate.
    authority: bool,
    pub(crate) name: ServerName<'static>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<ClientConfig>,
    /// The certificates that the file has held, the last one first.
    pinned: Vec<CertificateDer<'static>>,
}

/// Certificates that are known after a renewal: builders read the new one a moment earlier or later than the router.
const PINNED: usize = 4;

impl BuilderTls {
    /// Builders show exactly the certificate in `file`, the first if there are several: the router's own.
    ///
    /// # Errors
    /// [`BuilderTlsError`]
    pub fn pinned(file: &Path) -> Result<Self, BuilderTlsError> {
        // Nobody looks at the name.
        Self::open(file, false, "localhost")
    }

    /// Builders show a certificate for `name` that one in `file` vouches for.
    ///
    /// # Errors
    /// [`BuilderTlsError`]
    pub fn authority(file: &Path, name: &str) -> Result<Self, BuilderTlsError> {
        Self::open(file, true, name)
    }

    fn open(file: &Path, authority: bool, name: &str) -> Result<Self, BuilderTlsError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| BuilderTlsError::Name(name.to_owned()))?;
        let state = RwLock::new(load(file, authority, &[])?);
        Ok(Self { file: file.to_owned(), authority, name, state })
    }

    /// For the next connection.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).config.clone()
    }
}

impl Reload for BuilderTls {
    fn what(&self) -> &'static str {
        "the builders' certificate"
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.file.clone()]
    }

    fn reload(&self) -> Result<(), Box<dyn std::error::Error>> {
        let before = self.state.read().unwrap_or_else(PoisonError::into_inner).pinned.clone();
        let state = load(&self.file, self.authority, &before)?;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(())
    }
}

fn load(file: &Path, authority: bool, before: &[CertificateDer<'static>]) -> Result<State, BuilderTlsError> {
    let mut certificates = read(file)?;
    let provider = Arc::new(ring::default_provider());
    if authority {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate)?;
        }
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        return Ok(State { config: Arc::new(config), pinned: Vec::new() });
    }
    certificates.truncate(1);
    certificates.extend(before.iter().filter(|known| **known != certificates[0]).cloned().collect::<Vec<_>>());
    certificates.truncate(PINNED);
    let verifier = Arc::new(Pinned { expected: certificates.clone(), provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(State { config: Arc::new(config), pinned: certificates })
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, BuilderTlsError> {
    let problem = |problem: String| BuilderTlsError::Read { path: path.to_owned(), problem };
    let text = fs::read(path).map_err(|error: io::Error| problem(error.to_string()))?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| problem(error.to_string()))?;
    if all.is_empty() { Err(problem("it holds none".to_owned())) } else { Ok(all) }
}

/// Takes certificates that are known, whatever their names and dates: whoever has the key is a builder.
#[derive(Debug)]
struct Pinned {
    expected: Vec<CertificateDer<'static>>,
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
        if self.expected.iter().any(|expected| expected == end_entity) {
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
