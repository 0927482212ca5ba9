use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
}

/// Reads a certificate chain and its private key, both PEM, for a server that speaks TLS 1.2 and 1.3.
///
/// # Errors
/// [`TlsError`] names the file and what is wrong with it.
pub fn server_config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let rejected = |source: rustls::Error| TlsError::Rejected { cert: cert.to_owned(), key: key.to_owned(), source };
    let chain = read_chain(cert)?;
    let private = read_key(key)?;
    // The provider is passed explicitly: the process-wide default is a choice that libraries must not make.
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(rejected)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(rejected)?;
    Ok(Arc::new(config))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
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

    use super::server_config;

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
            server_config(&self.path(cert), &self.path(key)).unwrap_err().to_string()
        }
    }

    #[test]
    fn a_pair_is_taken() {
        let files = Files::new();
        server_config(&files.path("cert.pem"), &files.path("key.pem")).unwrap();
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
