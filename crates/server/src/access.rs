use protocol::{Refuse, SqlState};
use service::{DaemonError, exposed};

use crate::server::Shared;
use crate::{Config, ServerError, ticket};

/// Whether a client may have something built, by the token in its Hello and the ticket before it.
pub(crate) fn check(shared: &Shared, token: &str, shown: &str) -> Result<(), Box<Refuse>> {
    ticket::check(shared.config.tickets.as_deref(), shown)?;
    let Some(tokens) = &shared.config.tokens else { return Ok(()) };
    if tokens.allow(token) {
        return Ok(());
    }
    let (message, hint) = match token {
        "" => ("this builder wants a token", "Set hnsw.external_index_token to one of the builder's tokens."),
        _ => ("the token is not one of this builder's", "It may have been replaced: see the builder's --token-file."),
    };
    Err(Box::new(Refuse {
        retry_after_ms: 0,
        sqlstate: SqlState::INVALID_AUTHORIZATION,
        message: message.to_owned(),
        detail: String::new(),
        hint: hint.to_owned(),
    }))
}

/// Whether the builder may listen where it is told to: other machines get in only encrypted and if they say who they are, unless
/// somebody said explicitly that they may.
pub(crate) async fn check_exposure(config: &Config) -> Result<(), ServerError> {
    let encrypted = config.tls.is_some() || config.allow_plaintext_beyond_loopback;
    if encrypted && (asks_clients(config) || config.allow_anonymous) {
        return Ok(());
    }
    match exposed(&config.host, config.port).await? {
        Some(address) if !encrypted => Err(DaemonError::Plaintext(address).into()),
        Some(address) => Err(ServerError::Anonymous(address)),
        None => Ok(()),
    }
}

/// Whether clients must say who they are: by a token, a certificate or a ticket.
pub(crate) fn asks_clients(config: &Config) -> bool {
    let certificates = config.tls.as_ref().is_some_and(|tls| tls.asks_clients());
    certificates || config.tokens.is_some() || config.tickets.is_some()
}
