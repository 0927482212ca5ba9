use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use service::{Reload, lock};
use thiserror::Error;
use trust::{RootError, Verifier};

/// Why builders' certificates cannot be verified.
#[derive(Debug, Error)]
pub enum BuilderTlsError {
    /// The file cannot be read or is not PEM.
    #[error("cannot read certificates from {path}: {problem}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The name cannot be the name in a certificate.
    #[error("{0:?} is not a name that a certificate can be for")]
    Name(String),
    /// The certificates cannot be trusted.
    #[error(transparent)]
    Roots(#[from] RootError),
    /// rustls rejects the settings.
    #[error("cannot set TLS up")]
    Rejected(#[from] rustls::Error),
}

/// How the router verifies a builder's certificate.
#[derive(Debug)]
pub struct BuilderTls {
    file: PathBuf,
    pub(crate) name: ServerName<'static>,
    trust: Trust,
}

#[derive(Debug)]
enum Trust {
    Authorities(RwLock<Authorities>),
    Pinned(Arc<Pinned>, Arc<ClientConfig>),
}

impl BuilderTls {
    /// For builders that use exactly the certificate in `file`, the first if there are several: the router's own.
    ///
    /// # Errors
    /// [`BuilderTlsError`]
    pub fn pinned(file: &Path) -> Result<Self, BuilderTlsError> {
        let pinned = Arc::new(Pinned::open(file)?);
        let config = ClientConfig::builder_with_provider(pinned.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned.clone())
            .with_no_client_auth();
        // The name does not matter: `Pinned` does not check it.
        Self::new(file, "localhost", Trust::Pinned(pinned, Arc::new(config)))
    }

    /// For builders with a certificate for `name`, which is in `file` itself or signed by an authority there.
    ///
    /// # Errors
    /// [`BuilderTlsError`]
    pub fn authority(file: &Path, name: &str) -> Result<Self, BuilderTlsError> {
        Self::new(file, name, Trust::Authorities(RwLock::new(Authorities::read(file, &[])?)))
    }

    fn new(file: &Path, name: &str, trust: Trust) -> Result<Self, BuilderTlsError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| BuilderTlsError::Name(name.to_owned()))?;
        Ok(Self { file: file.to_owned(), name, trust })
    }

    /// The configuration for the next connection.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        match &self.trust {
            Trust::Authorities(now) => now.read().unwrap_or_else(PoisonError::into_inner).config.clone(),
            Trust::Pinned(_, config) => config.clone(),
        }
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
        match &self.trust {
            Trust::Authorities(now) => {
                let mut now = now.write().unwrap_or_else(PoisonError::into_inner);
                *now = Authorities::read(&self.file, &now.certificates)?;
            }
            Trust::Pinned(pinned, _) => pinned.look()?,
        }
        Ok(())
    }
}

/// Accepts the certificates in the file, and those that an authority in the file has signed, if they are for the builders' name.
#[derive(Debug)]
struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    config: Arc<ClientConfig>,
}

impl Authorities {
    /// `earlier` are the certificates that the file held before: builders may read a renewed one later than the router.
    fn read(file: &Path, earlier: &[CertificateDer<'static>]) -> Result<Self, BuilderTlsError> {
        let certificates = read(file)?;
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier::of_roots([&certificates, earlier].concat(), true, provider.clone())?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self { certificates, config: Arc::new(config) })
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, BuilderTlsError> {
    let problem = |problem: String| BuilderTlsError::Read { path: path.to_owned(), problem };
    let text = fs::read(path).map_err(|error: io::Error| problem(error.to_string()))?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| problem(error.to_string()))?;
    if all.is_empty() { Err(problem("it holds none".to_owned())) } else { Ok(all) }
}

/// Accepts the certificates that the file holds or has held, whatever their names and dates: the private key identifies a builder.
#[derive(Debug)]
struct Pinned {
    file: PathBuf,
    /// Known certificates, the latest first.
    known: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    /// The most certificates to remember: after a renewal, builders may read the new one earlier or later than the router.
    const MOST: usize = 4;

    fn open(file: &Path) -> Result<Self, BuilderTlsError> {
        let provider = Arc::new(ring::default_provider());
        let pinned = Self { file: file.to_owned(), known: Mutex::default(), provider };
        pinned.look()?;
        Ok(pinned)
    }

    /// Adds the certificate that the file holds now.
    fn look(&self) -> Result<(), BuilderTlsError> {
        let now = read(&self.file)?.remove(0);
        let mut known = lock(&self.known);
        known.retain(|certificate| *certificate != now);
        known.insert(0, now);
        known.truncate(Self::MOST);
        Ok(())
    }

    fn knows(&self, certificate: &CertificateDer<'_>) -> bool {
        lock(&self.known).iter().any(|known| known == certificate)
    }
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
        // A builder that has just started may have read a renewed file before the router.
        if self.knows(end_entity) || self.look().is_ok() && self.knows(end_entity) {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::UnixTime;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};
    use service::Reload;

    use super::{Arc, BuilderTls, Pinned, ServerName, read, ring};

    type Made = (rcgen::Certificate, rcgen::KeyPair);

    /// A certificate as OpenSSL makes it: it claims to be an authority.
    fn made(name: &str) -> Made {
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap(), key)
    }

    /// Whether a handshake goes on after the builder has shown this certificate.
    fn is_accepted(tls: &BuilderTls, (certificate, key): &Made) -> bool {
        let server = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
            .unwrap();
        let mut client = ClientConnection::new(tls.config(), tls.name.clone()).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let (mut hello, mut answer) = (Vec::new(), Vec::new());
        client.write_tls(&mut hello).unwrap();
        server.read_tls(&mut &*hello).unwrap();
        server.process_new_packets().unwrap();
        while server.wants_write() {
            server.write_tls(&mut answer).unwrap();
        }
        client.read_tls(&mut &*answer).unwrap();
        client.process_new_packets().is_ok()
    }

    #[test]
    fn what_the_file_held_before_is_accepted_until_the_next_reload() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [made("builders"), made("builders")];
        fs::write(file.path(), first.0.pem()).unwrap();
        let tls = BuilderTls::authority(file.path(), "builders").unwrap();
        assert!(is_accepted(&tls, &first) && !is_accepted(&tls, &second));
        fs::write(file.path(), second.0.pem()).unwrap();
        tls.reload().unwrap();
        assert!(is_accepted(&tls, &first) && is_accepted(&tls, &second));
        tls.reload().unwrap();
        assert!(!is_accepted(&tls, &first) && is_accepted(&tls, &second));
    }

    #[test]
    fn a_builder_may_have_signed_its_certificate_itself() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [known, other] = [made("builders"), made("builders")];
        fs::write(file.path(), known.0.pem()).unwrap();
        let takes = |made: &Made, name: &str| is_accepted(&BuilderTls::authority(file.path(), name).unwrap(), made);
        assert!(takes(&known, "builders"));
        assert!(!takes(&known, "others") && !takes(&other, "builders"));
    }

    #[test]
    fn a_certificate_is_known_as_soon_as_the_file_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cert.pem");
        let renew = || {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&file, made.cert.pem()).unwrap();
            read(&file).unwrap().remove(0)
        };
        let name = ServerName::try_from("localhost").unwrap();
        let first = renew();
        let pinned = Pinned::open(&file).unwrap();
        let takes = |certificate: &_| pinned.verify_server_cert(certificate, &[], &name, &[], UnixTime::now()).is_ok();
        let second = renew();
        assert!(takes(&first) && takes(&second), "the last one and the next one");
        let third = renew();
        renew();
        assert!(takes(&second) && !takes(&third), "nobody has looked while the file held it");
        (0..Pinned::MOST).for_each(|_| assert!(takes(&renew())));
        assert!(!takes(&second), "after some renewals it is forgotten");
    }
}
