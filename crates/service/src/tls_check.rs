//! Finds all problems of a TLS server's files, whereas [`Tls::open`] stops at the first.

use std::path::Path;

use rustls::crypto::ring;

use crate::certificate::{fault_of_dates, now, validity};
use crate::tls::{client_verifier, read_chain, read_key};
use crate::{Tls, TlsError};

/// The file with a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The certificate chain.
    Cert,
    /// The private key.
    Key,
    /// The authorities that sign client certificates.
    ClientCa,
}

/// All problems of these files, each with its file. An expired certificate is a problem here, although a server would start
/// with it.
#[must_use]
pub fn check_tls(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Vec<(TlsFile, TlsError)> {
    let chain = read_chain("certificate", cert);
    let dates = chain.as_ref().ok().and_then(|chain| {
        let problem = chain.iter().filter_map(validity).find_map(|dates| fault_of_dates(dates, now()))?;
        Some(TlsError::Dates { path: cert.to_owned(), problem })
    });
    let authority = |path| client_verifier(path, ring::default_provider().into());
    let faults = [
        (TlsFile::Cert, chain.err()),
        (TlsFile::Key, read_key(key).err()),
        (TlsFile::ClientCa, client_ca.and_then(|path| authority(path).err())),
    ];
    let mut faults: Vec<_> = faults.into_iter().filter_map(|(file, error)| Some((file, error?))).collect();
    if faults.is_empty() {
        faults.extend(Tls::open(cert, key, client_ca).err().map(|error| (TlsFile::Cert, error)));
    }
    faults.extend(dates.map(|error| (TlsFile::Cert, error)));
    faults
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::{TlsFile, check_tls};

    #[test]
    fn every_file_at_fault_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let key = KeyPair::generate().unwrap();
        fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        fs::write(path("other.pem"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        for (name, from, to) in [("cert.pem", 2020, 3020), ("old.pem", 2020, 2021), ("early.pem", 3020, 3021)] {
            let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
            fs::write(path(name), params.self_signed(&key).unwrap().pem()).unwrap();
        }
        for (cert, key, ca, expected) in [
            ("cert.pem", "key.pem", "cert.pem", &[][..]),
            ("cert.pem", "other.pem", "cert.pem", &[(TlsFile::Cert, "cannot be used with key")]),
            ("old.pem", "key.pem", "cert.pem", &[(TlsFile::Cert, "old.pem expired ")]),
            ("early.pem", "key.pem", "cert.pem", &[(TlsFile::Cert, "early.pem is not valid yet")]),
            ("old.pem", "absent", "cert.pem", &[(TlsFile::Key, "absent"), (TlsFile::Cert, "old.pem expired ")]),
            (
                "absent1",
                "absent2",
                "absent3",
                &[
                    (TlsFile::Cert, "cannot read certificate file"),
                    (TlsFile::Key, "cannot read private key file"),
                    (TlsFile::ClientCa, "absent3"),
                ],
            ),
        ] {
            let faults = check_tls(&path(cert), &path(key), Some(&path(ca)));
            assert_eq!(faults.len(), expected.len(), "{faults:?}");
            for ((file, error), (expected, words)) in faults.iter().zip(expected) {
                assert!(file == expected && error.to_string().contains(words), "{file:?} {error}");
            }
        }
    }
}
