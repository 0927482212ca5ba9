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

use crate::Reload;
use crate::certificate::{now, validity, warning_of_dates};

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
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not valid PEM.
    #[error("{what} file {path} is not valid PEM: {problem}")]
    Pem {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: pem::Error,
    },
    /// Valid PEM without the expected content.
    #[error("{what} file {path} holds no {what}")]
    Missing {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not match, or are not usable for TLS.
    #[error("certificate {cert} cannot be used with key {key}")]
    Rejected {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The authorities for client certificates cannot be used.
    #[error("client authority {path} cannot be used: {problem}")]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The certificate is not valid yet, or has expired.
    #[error("certificate {path} {problem}")]
    Dates {
        /// The file.
        path: PathBuf,
        /// Since when it has expired, or when it becomes valid.
        problem: String,
    },
}

/// A server's TLS configuration, from files that can be reloaded; open connections are not affected.
#[derive(Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    loaded: RwLock<Loaded>,
}

/// The content of the files.
#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// The time in which the whole chain is valid, from and to, in seconds since 1970.
    validity: Option<(i64, i64)>,
}

impl Tls {
    /// Reads a certificate chain and its private key, and the authorities for client certificates, if required; all PEM.
    /// TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn open(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let loaded = RwLock::new(load(cert, key, client_ca)?);
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), client_ca: client_ca.map(Path::to_owned), loaded })
    }

    /// The certificate's file.
    #[must_use]
    pub fn cert(&self) -> &Path {
        &self.cert
    }

    /// The validity of the whole certificate chain, from and to, in seconds since 1970; `None` if unknown.
    #[must_use]
    pub fn validity(&self) -> Option<(i64, i64)> {
        self.loaded().validity
    }

    /// A warning if the certificate has expired, is not valid yet or expires soon.
    #[must_use]
    pub fn warning_of_dates(&self) -> Option<String> {
        let warning = warning_of_dates(self.validity()?, now())?;
        Some(format!("certificate {} {warning}", self.cert.display()))
    }

    /// The configuration for new connections.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.loaded().config
    }

    fn loaded(&self) -> Loaded {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether clients must show a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.client_ca.is_some()
    }
}

impl Reload for Tls {
    fn what(&self) -> &'static str {
        "certificates"
    }

    fn files(&self) -> Vec<PathBuf> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }

    fn reload(&self) -> Result<(), Box<dyn std::error::Error>> {
        let loaded = load(&self.cert, &self.key, self.client_ca.as_deref())?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }
}

fn load(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Loaded, TlsError> {
    let rejected = |source: rustls::Error| TlsError::Rejected { cert: cert.to_owned(), key: key.to_owned(), source };
    let chain = read_chain("certificate", cert)?;
    let private = read_key(key)?;
    let all = chain.iter().filter_map(validity);
    let validity = all.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)));
    // The provider is passed explicitly: libraries must not choose the process-wide default.
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(rejected)?;
    let builder = match client_ca {
        Some(path) => builder.with_client_cert_verifier(client_verifier(path, provider)?),
        None => builder.with_no_client_auth(),
    };
    let config = Arc::new(builder.with_single_cert(chain, private).map_err(rejected)?);
    Ok(Loaded { config, validity })
}

pub(crate) fn client_verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |problem: String| TlsError::ClientCa { path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for certificate in read_chain("certificate", path)? {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| unusable(error.to_string()))
}

pub(crate) fn read_chain(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(what, path)?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|problem| TlsError::Pem { what, path: path.to_owned(), problem })?;
    if chain.is_empty() { Err(TlsError::Missing { what, path: path.to_owned() }) } else { Ok(chain) }
}

pub(crate) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
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
    use crate::Reload;

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
    fn a_certificate_with_its_key_is_accepted() {
        let files = Files::new();
        let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
        let tls = Tls::open(&cert, &key, None).unwrap();
        assert!(!tls.asks_clients());
        assert!(Tls::open(&cert, &key, Some(&cert)).unwrap().asks_clients());
        let error = Tls::open(&cert, &key, Some(&files.path("empty.pem"))).unwrap_err().to_string();
        assert!(error.contains("empty.pem holds no certificate"), "{error}");
    }

    #[test]
    fn a_failed_reload_keeps_the_old_certificate() {
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
    fn an_expired_certificate_causes_a_warning() {
        let files = Files::new();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 2, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        files.write("cert.pem", &params.self_signed(&key).unwrap().pem());
        files.write("key.pem", &key.serialize_pem());
        let tls = Tls::open(&files.path("cert.pem"), &files.path("key.pem"), None).unwrap();
        let (from, to) = tls.validity().unwrap();
        assert_eq!(to - from, 31 * 86_400);
        let warning = tls.warning_of_dates().unwrap();
        assert!(warning.contains("cert.pem expired ") && warning.ends_with(" days ago"), "{warning}");
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
