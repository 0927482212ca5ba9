//! TLS to the builder, with libpq's levels of certificate checks.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::prelude::*;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error};
use trust::{RootError, Verifier};

use crate::failure::{Failure, information, tell};
use crate::settings::{SslMode, TlsSettings};

/// The most plaintext bytes that may wait to be encrypted and sent.
const BUFFER_BYTES: usize = 512 << 10;

/// A client for one connection.
pub(crate) fn client(settings: &TlsSettings) -> Result<ClientConnection, Failure> {
    let name = ServerName::try_from(settings.name.clone()).map_err(|_| {
        Failure::of_setting(format!("\"{}\" is not a valid host name", settings.name), "hnsw.external_index_host")
    })?;
    let mut client = ClientConnection::new(Arc::new(client_config(settings)?), name)
        .map_err(|error| Failure::of_setting(error.to_string(), "hnsw.external_index_sslmode"))?;
    client.set_buffer_limit(Some(BUFFER_BYTES));
    Ok(client)
}

/// Whether the builder rejects the client's certificate, or requires one. In TLS 1.3 this alert arrives after the client's handshake.
pub(crate) fn is_about_our_certificate(error: &Error) -> bool {
    use AlertDescription::*;
    let Error::AlertReceived(alert) = error else { return false };
    matches!(
        alert,
        CertificateRequired
            | NoCertificate
            | BadCertificate
            | UnsupportedCertificate
            | CertificateRevoked
            | CertificateExpired
            | CertificateUnknown
            | UnknownCA
            | AccessDenied
            | DecryptError
    )
}

/// Why a handshake failed, with what to do about it.
pub(crate) fn failure(peer: &str, error: &Error) -> Failure {
    let hint = match error {
        Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::NoCertificate) => {
            "The builder asks for a certificate: set hnsw.external_index_sslcert and hnsw.external_index_sslkey to one that its --client-ca vouches for."
        }
        error if is_about_our_certificate(error) => {
            "The builder does not take the certificate in hnsw.external_index_sslcert: it must be valid, for use by clients, and vouched for by the builder's --client-ca."
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "Make a certificate for this host name (\"lantern-index gen-cert --host NAME\"), or set hnsw.external_index_sslmode to verify-ca."
        }
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => {
            "Renew the builder's certificate (\"lantern-index gen-cert\"), or set the clock of the database's machine right."
        }
        Error::InvalidCertificate(_) => {
            "Set hnsw.external_index_sslrootcert to the certificate that signed the builder's, or to the builder's own if it is self-signed."
        }
        Error::InvalidMessage(_) => {
            "Check that hnsw.external_index_host and hnsw.external_index_port name a lantern-index builder: the server does not speak TLS."
        }
        // From our verifier, for certificates of X.509 version 1.
        Error::Other(_) => "Make another certificate for the builder (\"lantern-index gen-cert --host NAME\").",
        _ => "See the builder's log for the reason.",
    };
    disagreement(peer).detail(detail(error)).hint(hint)
}

/// The handshake failed.
pub(crate) fn disagreement(peer: &str) -> Failure {
    let message = format!("could not agree on TLS with external indexing server on {peer}");
    Failure::new(PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE, message)
}

fn detail(error: &Error) -> String {
    let Error::InvalidCertificate(problem) = error else { return format!("{error}.") };
    match problem {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("The builder's certificate expired on {}.", utc(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("The builder's certificate is not valid before {}.", utc(*not_before))
        }
        CertificateError::BadSignature | CertificateError::UnknownIssuer => {
            "The builder's certificate was not signed by a certificate in hnsw.external_index_sslrootcert.".into()
        }
        _ => format!("{error}."),
    }
}

/// A time as PostgreSQL shows it, for instance `2026-11-23 03:45:00 UTC`.
fn utc(time: UnixTime) -> String {
    let seconds = pg_sys::pg_time_t::try_from(time.as_secs()).unwrap_or(pg_sys::pg_time_t::MAX);
    // SAFETY: the result is PostgreSQL's own, read before it is used again; null for times that it cannot show.
    let Some(tm) = (unsafe { pg_sys::pg_gmtime(&raw const seconds).as_ref() }) else {
        return format!("second {seconds}");
    };
    let (year, month) = (tm.tm_year + 1900, tm.tm_mon + 1);
    format!("{year}-{month:02}-{:02} {:02}:{:02}:{:02} UTC", tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec)
}

fn client_config(settings: &TlsSettings) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::of_setting(error.to_string(), "hnsw.external_index_secure"))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier(settings, provider)?);
    let setting = "hnsw.external_index_sslcert and hnsw.external_index_sslkey";
    match (&settings.cert, &settings.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let certs = certificates(cert, "hnsw.external_index_sslcert")?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                Failure::of_setting(format!("could not read \"{key}\": {error}"), "hnsw.external_index_sslkey")
            })?;
            builder.with_client_auth_cert(certs, key).map_err(|error| Failure::of_setting(error.to_string(), setting))
        }
        _ => Err(Failure::of_setting("a certificate needs its key, and a key its certificate".into(), setting)),
    }
}

fn verifier(settings: &TlsSettings, provider: Arc<CryptoProvider>) -> Result<Arc<Verifier>, Failure> {
    let verifier = match (settings.mode, &settings.root_cert) {
        (SslMode::Require, None) => {
            say_once_that_nothing_is_verified();
            Verifier::of_any(provider)
        }
        (mode, None) => {
            let name = if mode == SslMode::VerifyCa { "verify-ca" } else { "verify-full" };
            let message = format!("sslmode \"{name}\" needs a root certificate");
            return Err(Failure::of_setting(message, "hnsw.external_index_sslrootcert"));
        }
        (mode, Some(file)) => {
            let setting = "hnsw.external_index_sslrootcert";
            let roots = certificates(file, setting)?;
            Verifier::of_roots(roots, mode == SslMode::VerifyFull, provider).map_err(|error| match error {
                RootError::Certificate(error) => {
                    Failure::of_setting(format!("a certificate in \"{file}\" is not valid: {error}"), setting)
                }
                RootError::Chain(error) => Failure::of_setting(error.to_string(), setting),
            })?
        }
    };
    Ok(Arc::new(verifier))
}

fn certificates(file: &str, setting: &str) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let failed = |error: String| Failure::of_setting(format!("could not read \"{file}\": {error}"), setting);
    let reader = File::open(file).map_err(|error| failed(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(reader).collect();
    match certificates.map_err(|error| failed(error.to_string()))? {
        none if none.is_empty() => Err(failed("no certificate in it".into())),
        certificates => Ok(certificates),
    }
}

fn say_once_that_nothing_is_verified() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let message =
            "the connection to the external indexing server is encrypted, but its certificate is not verified";
        tell(PgLogLevel::NOTICE, information(message).set_detail("Set hnsw.external_index_sslrootcert to verify it."));
    }
}
