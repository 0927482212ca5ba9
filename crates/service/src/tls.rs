use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;

/// Why a certificate and key cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {what} file {path}")]
    Read {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is not PEM, or broken.
    #[error("{what} file {path} is not valid PEM: {problem}")]
    Pem {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: pem::Error,
    },
    /// PEM, but of something else.
    #[error("{what} file {path} holds no {what}")]
    Missing {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Each is fine, but not together or not for TLS.
    #[error("certificate {cert} cannot be used with key {key}")]
    Rejected {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
    /// No authority for the certificates of clients.
    #[error("client authority {path} cannot be used: {problem}")]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// What a server shows and asks for in TLS, by files that can be read again: connections that are open stay as they are.
#[derive(Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads a certificate chain and its private key, and the authorities of whom clients must show a certificate; all PEM.
    /// TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn open(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let config = RwLock::new(Arc::new(server_config(cert, key, client_ca)?));
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), client_ca: client_ca.map(Path::to_owned), config })
    }

    /// For the next connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether clients must show a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`Tls::open`]; then everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(server_config(&self.cert, &self.key, self.client_ca.as_deref())?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}

fn server_config(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<ServerConfig, TlsError> {
    let rejected = |source: rustls::Error| TlsError::Rejected { cert: cert.to_owned(), key: key.to_owned(), source };
    let chain = read_chain("certificate", cert)?;
    let private = read_key(key)?;
    // The provider is passed explicitly: the process-wide default is a choice that libraries must not make.
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(rejected)?;
    let builder = match client_ca {
        Some(path) => builder.with_client_cert_verifier(client_verifier(path, provider)?),
        None => builder.with_no_client_auth(),
    };
    builder.with_single_cert(chain, private).map_err(rejected)
}

fn client_verifier(path: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |problem: String| TlsError::ClientCa { path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for certificate in read_chain("certificate", path)? {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| unusable(error.to_string()))
}

fn read_chain(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(what, path)?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|problem| TlsError::Pem { what, path: path.to_owned(), problem })?;
    if chain.is_empty() { Err(TlsError::Missing { what, path: path.to_owned() }) } else { Ok(chain) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "private key";
    let text = read(what, path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|problem| match problem {
        pem::Error::NoItemsFound => TlsError::Missing { what, path: path.to_owned() },
        problem => TlsError::Pem { what, path: path.to_owned(), problem },
    })
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { what, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::Tls;

    struct Files {
        dir: TempDir,
    }

    impl Files {
        fn new() -> Self {
            let files = Self { dir: TempDir::new().unwrap() };
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            files.write("cert.pem", &pair.cert.pem());
            files.write("key.pem", &pair.signing_key.serialize_pem());
            files.write("other.pem", &other.signing_key.serialize_pem());
            files.write("empty.pem", "");
            files.write("broken.pem", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
            files
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn error(&self, cert: &str, key: &str) -> String {
            Tls::open(&self.path(cert), &self.path(key), None).unwrap_err().to_string()
        }
    }

    #[test]
    fn a_pair_is_taken() {
        let files = Files::new();
        let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
        let tls = Tls::open(&cert, &key, None).unwrap();
        assert!(!tls.asks_clients());
        assert!(Tls::open(&cert, &key, Some(&cert)).unwrap().asks_clients());
        let error = Tls::open(&cert, &key, Some(&files.path("empty.pem"))).unwrap_err().to_string();
        assert!(error.contains("empty.pem holds no certificate"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_again_stays() {
        let files = Files::new();
        let tls = Tls::open(&files.path("cert.pem"), &files.path("key.pem"), None).unwrap();
        let before = tls.config();
        tls.reload().unwrap();
        let again = tls.config();
        assert!(!std::sync::Arc::ptr_eq(&before, &again));
        files.write("cert.pem", "");
        assert!(tls.reload().unwrap_err().to_string().contains("cert.pem"));
        assert!(std::sync::Arc::ptr_eq(&tls.config(), &again));
    }

    #[test]
    fn errors_name_the_file_and_the_problem() {
        let files = Files::new();
        for (cert, key, expected) in [
            ("absent.pem", "key.pem", "cannot read certificate file"),
            ("cert.pem", "absent.pem", "cannot read private key file"),
            ("empty.pem", "key.pem", "empty.pem holds no certificate"),
            ("key.pem", "key.pem", "key.pem holds no certificate"),
            ("cert.pem", "cert.pem", "cert.pem holds no private key"),
            ("broken.pem", "key.pem", "broken.pem is not valid PEM"),
            ("cert.pem", "other.pem", "cannot be used with key"),
        ] {
            let error = files.error(cert, key);
            assert!(error.contains(expected), "{cert} + {key}: {error}");
        }
    }
}
