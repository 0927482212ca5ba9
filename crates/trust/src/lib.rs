//! Is this the server that was meant? Checks its certificate as libpq's `sslmode` asks, for all our clients with that setting.

mod certificate;

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
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

/// A certificate without the fields by which webpki verifies a chain, such as OpenSSL before 3.2 makes with `x509 -req`.
#[derive(Debug, ThisError)]
#[error(
    "the server's certificate is of X.509 version 1, which cannot be verified: it needs one of version 3, with a subjectAltName"
)]
struct Version1;

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

    /// Whether the host's name is the common name, in which `*` may stand for the first label. It counts only if there
    /// is no `subjectAltName`, and no authority with name constraints: webpki does not apply these to common names.
    fn is_common_name(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
    ) -> bool {
        let Some(common) = certificate::common_name(end_entity) else { return false };
        let host = server_name.to_str();
        let domain = match server_name {
            ServerName::DnsName(_) => host.split_once('.').map(|(_, domain)| domain),
            _ => None,
        };
        let is_in = |domain: &str| common.strip_prefix("*.").is_some_and(|name| name.eq_ignore_ascii_case(domain));
        let roots = self.check.iter().flat_map(|check| &check.roots);
        (common.eq_ignore_ascii_case(&host) || domain.is_some_and(is_in))
            && !intermediates.iter().chain(roots).any(|authority| certificate::constrains_names(authority))
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
        if certificate::version_1(end_entity).is_some() {
            return Err(Error::Other(OtherError(Arc::new(Version1))));
        }
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !name || self.is_common_name(end_entity, intermediates, server_name) => verified,
            // A self-signed certificate, as OpenSSL makes it by default, claims to be an authority, which webpki rejects for a
            // server. It is accepted if it is one of the roots itself; its name is still checked.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if roots.iter().any(|root| root == end_entity) =>
            {
                if *name && !self.is_common_name(end_entity, intermediates, server_name) {
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
        let readable = certificate::version_1(cert);
        let cert = readable.as_ref().unwrap_or(cert);
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let readable = certificate::version_1(cert);
        let cert = readable.as_ref().unwrap_or(cert);
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, GeneralSubtree, IsCa, KeyPair, NameConstraints,
    };
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::{ServerConfig, ServerConnection};
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};

    use super::*;
    use crate::certificate::tests::without_version;

    /// An authority; with `permitted`, its name constraints permit that domain only.
    fn authority(permitted: Option<&str>) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.name_constraints = permitted.map(|domain| NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName(domain.to_owned())],
            excluded_subtrees: Vec::new(),
        });
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn of_common_name(name: &str, others: &[&str]) -> CertificateParams {
        let others: Vec<String> = others.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(others).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    /// A handshake with a server that has this certificate.
    fn handshake(
        verifier: Verifier,
        version: &'static SupportedProtocolVersion,
        host: &str,
        certificate: Vec<u8>,
        key: &KeyPair,
    ) -> Result<(), Error> {
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = ring::sign::any_supported_type(&key).unwrap();
        let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.into()], key));
        let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[version]).unwrap();
        let server = server.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let client = client.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        while client.is_handshaking() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets()?;
            }
            bytes.clear();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            let mut rest: &[u8] = &bytes;
            while !rest.is_empty() {
                client.read_tls(&mut rest as &mut dyn io::Read).unwrap();
                client.process_new_packets()?;
            }
        }
        Ok(())
    }

    #[test]
    fn a_certificate_of_version_1_is_accepted_unless_it_is_to_be_verified() {
        let provider = Arc::new(ring::default_provider());
        let key = KeyPair::generate().unwrap();
        let certificate = without_version(of_common_name("db.example", &[]).self_signed(&key).unwrap().der());
        for version in [&TLS12, &TLS13] {
            handshake(Verifier::of_any(provider.clone()), version, "db.example", certificate.clone(), &key).unwrap();
            let other = KeyPair::generate().unwrap();
            let of_any = Verifier::of_any(provider.clone());
            handshake(of_any, version, "db.example", certificate.clone(), &other).unwrap_err();
            let roots = vec![certificate.clone().into()];
            let verifier = Verifier::of_roots(roots, false, provider.clone()).unwrap();
            let error = handshake(verifier, version, "db.example", certificate.clone(), &key).unwrap_err();
            assert!(error.to_string().contains("version 1"), "{error}");
        }
    }

    #[test]
    fn the_common_name_counts_if_there_is_no_other_name() {
        let provider = Arc::new(ring::default_provider());
        let (free, bound) = (authority(None), authority(Some("example")));
        let key = KeyPair::generate().unwrap();
        let is_accepted = |issuer: &CertifiedIssuer<'static, KeyPair>, common: &str, others: &[&str], host: &str| {
            let verifier = Verifier::of_roots(vec![issuer.der().clone()], true, provider.clone()).unwrap();
            let certificate = of_common_name(common, others).signed_by(&key, issuer).unwrap();
            handshake(verifier, &TLS13, host, certificate.der().to_vec(), &key).is_ok()
        };
        for (common, host) in [
            ("db.example", "db.example"),
            ("DB.example", "db.EXAMPLE"),
            ("*.example", "db.example"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            assert!(is_accepted(&free, common, &[], host), "{common} {host}");
            assert!(is_accepted(&free, "other", &[host], host), "{host}");
            assert!(!is_accepted(&free, common, &["other"], host), "{common} {host} beside another name");
            assert!(!is_accepted(&bound, common, &[], host), "{common} {host} by a bound authority");
        }
        for (common, host) in [
            ("db.example", "other.example"),
            ("*.example", "a.db.example"),
            ("*.example", "example"),
            ("*", "example"),
            ("*.0.0.1", "127.0.0.1"),
        ] {
            assert!(!is_accepted(&free, common, &[], host), "{common} {host}");
        }
    }
}
