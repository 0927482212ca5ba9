//! Is this the server that was meant? Checks its certificate as libpq's `sslmode` asks, for all our clients with that setting.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use thiserror::Error as ThisError;

/// Why root certificates cannot be used.
#[derive(Debug, ThisError)]
pub enum RootError {
    /// One of them is not a valid certificate.
    #[error(transparent)]
    Certificate(Error),
    /// No verifier can be made of them, for example because there are none.
    #[error(transparent)]
    Chain(#[from] VerifierBuilderError),
}

/// A verifier for rustls, in place of its own.
#[derive(Debug)]
pub struct Verifier {
    /// `None` accepts any certificate.
    check: Option<Check>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct Check {
    chain: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
    /// Whether the certificate must be for the host of the connection.
    name: bool,
}

impl Verifier {
    /// Accepts any certificate: `sslmode=require` without a root certificate.
    #[must_use]
    pub fn of_any(provider: Arc<CryptoProvider>) -> Self {
        Self { check: None, provider }
    }

    /// Accepts certificates that one of `roots` has signed and, with `name`, only those for the host of the connection:
    /// `verify-ca` and `verify-full`.
    ///
    /// # Errors
    /// [`RootError`] if the roots cannot be used.
    pub fn of_roots(
        roots: Vec<CertificateDer<'static>>,
        name: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, RootError> {
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(RootError::Certificate)?;
        }
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone()).build()?;
        Ok(Self { check: Some(Check { chain, roots, name }), provider })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = Ok(ServerCertVerified::assertion());
        let Some(Check { chain, roots, name }) = &self.check else { return verified };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !name => verified,
            // A self-signed certificate, as OpenSSL makes it by default, claims to be an authority, which webpki rejects for a
            // server. It is accepted if it is one of the roots itself; its name is still checked.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if roots.iter().any(|root| root == end_entity) =>
            {
                if *name {
                    verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                }
                verified
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
