//! Who may use a daemon? Authentication of clients, by the same rules for builder and router.

use std::net::SocketAddr;
use std::sync::Arc;

use protocol::{ErrorReport, Refuse, SqlState};
use tokio::net::lookup_host;

use crate::client::Client;
use crate::{DaemonError, Tls, Tokens};

/// How clients authenticate.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The accepted tokens.
    pub tokens: Option<Arc<Tokens>>,
    /// TLS, optionally with client certificates; `None` for plaintext.
    pub tls: Option<Arc<Tls>>,
    /// Whether to listen beyond loopback without TLS: rows would cross the network in plaintext.
    pub allow_plaintext_beyond_loopback: bool,
    /// Whether to listen beyond loopback without authentication.
    pub allow_anonymous: bool,
}

impl Access {
    /// Whether clients must authenticate, by token or certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.tokens.is_some() || self.tls.as_ref().is_some_and(|tls| tls.asks_clients())
    }

    /// Authenticates a client by the token in its Hello and the name in its certificate. Messages name the `daemon`, `builder`
    /// or `router`.
    ///
    /// # Errors
    /// The refusal for the client.
    pub fn admit(
        &self,
        daemon: &str,
        peer: SocketAddr,
        token: &str,
        certificate: Option<&str>,
    ) -> Result<Client, Box<Refuse>> {
        let mut client = Self::by_certificate(peer, certificate);
        let Some(tokens) = &self.tokens else { return Ok(client) };
        if let Some(owner) = tokens.owner(token) {
            client.limits = owner.limits;
            client.name = owner.name.or(client.name);
            return Ok(client);
        }
        let (message, hint) = match token {
            "" => (
                format!("this {daemon} wants a token"),
                format!("Set hnsw.external_index_token to one of the {daemon}'s tokens."),
            ),
            _ => (
                format!("the token is not one of this {daemon}'s"),
                format!("It may have been replaced: see the {daemon}'s --token-file."),
            ),
        };
        Err(ErrorReport::new(SqlState::INVALID_AUTHORIZATION, message).hint(hint).refuse(0))
    }

    /// [`Access::admit`] for a Lantern client, whose protocol has no tokens.
    ///
    /// # Errors
    /// The refusal for the client.
    pub fn admit_lantern(&self, daemon: &str, peer: SocketAddr, certificate: Option<&str>) -> Result<Client, String> {
        match self.tokens {
            Some(_) => Err(format!("this {daemon} wants a token, and the client cannot send one")),
            None => Ok(Self::by_certificate(peer, certificate)),
        }
    }

    fn by_certificate(peer: SocketAddr, certificate: Option<&str>) -> Client {
        Client { name: certificate.map(Into::into), ..Client::unnamed(peer) }
    }

    /// Checks the token of a ping, if it has one: a ping is refused if a build with this token, even an empty one, would be. A
    /// ping without one is a health check and always succeeds.
    ///
    /// # Errors
    /// The refusal for the client.
    pub fn answer_ping(&self, daemon: &str, peer: SocketAddr, token: Option<&str>) -> Result<(), Box<Refuse>> {
        token.map_or(Ok(()), |token| self.admit(daemon, peer, token, None).map(drop))
    }

    /// Checks whether the daemon may listen at its address: beyond loopback it needs TLS and authentication, unless the
    /// configuration waives them. Tickets of a router count as authentication: `with_tickets`.
    ///
    /// # Errors
    /// If other machines can reach an address that does not meet these conditions.
    pub async fn check_exposure(&self, host: &str, port: u16, with_tickets: bool) -> Result<(), DaemonError> {
        let encrypted = self.tls.is_some() || self.allow_plaintext_beyond_loopback;
        let asked = self.asks_clients() || with_tickets || self.allow_anonymous;
        if encrypted && asked {
            return Ok(());
        }
        match exposed(host, port).await? {
            Some(address) if !encrypted => Err(DaemonError::Plaintext(address)),
            Some(address) => Err(DaemonError::Anonymous(address)),
            None => Ok(()),
        }
    }
}

/// An address of the host that other machines can reach; `None` if there is none.
async fn exposed(host: &str, port: u16) -> Result<Option<SocketAddr>, DaemonError> {
    let resolve = |source| DaemonError::Resolve { host: host.to_owned(), source };
    let mut addresses = lookup_host((host, port)).await.map_err(resolve)?;
    Ok(addresses.find(|address| !address.ip().to_canonical().is_loopback()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::Access;
    use crate::Tokens;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn a_token_gives_its_client_s_name_and_limits() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("tenant-a {TOKEN} builds=2\nfedcba9876543210\n")).unwrap();
        let access = Access { tokens: Some(Arc::new(Tokens::open(file.path()).unwrap())), ..Access::default() };
        let peer = "10.0.0.7:5000".parse().unwrap();
        let client = access.admit("router", peer, TOKEN, Some("certificate")).unwrap();
        assert_eq!((client.name.as_deref(), client.limits.builds), (Some("tenant-a"), 2));
        let client = access.admit("router", peer, "fedcba9876543210", Some("certificate")).unwrap();
        assert_eq!(client.name.as_deref(), Some("certificate"), "the token has no name");
        let refuse = access.admit("router", peer, "", None).unwrap_err();
        assert_eq!(
            (refuse.report.sqlstate.as_str(), refuse.report.message.as_str()),
            ("28000", "this router wants a token")
        );
        assert!(access.admit("router", peer, "wrong", None).unwrap_err().report.hint.contains("--token-file"));
        let pings = [None, Some(""), Some(TOKEN), Some("wrong")];
        let answered = pings.map(|token| access.answer_ping("router", peer, token).is_ok());
        assert_eq!(answered, [true, false, true, false]);
        assert!(Access::default().answer_ping("router", peer, Some("")).is_ok(), "the daemon has no tokens");
    }

    #[tokio::test]
    async fn listening_beyond_loopback_needs_tls_and_authentication_or_waivers() {
        let open = Access { allow_plaintext_beyond_loopback: true, ..Access::default() };
        assert!(open.check_exposure("127.0.0.1", 1, false).await.is_ok());
        let error = open.check_exposure("0.0.0.0", 1, false).await.unwrap_err().to_string();
        assert!(error.contains("would not be asked who they are"), "{error}");
        assert!(open.check_exposure("0.0.0.0", 1, true).await.is_ok());
        let error = Access::default().check_exposure("0.0.0.0", 1, true).await.unwrap_err().to_string();
        assert!(error.contains("would not be encrypted"), "{error}");
        let anonymous = Access { allow_anonymous: true, ..open };
        assert!(anonymous.check_exposure("0.0.0.0", 1, false).await.is_ok());
    }
}
