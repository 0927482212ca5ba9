use protocol::{Refuse, SqlState};
use service::{Client, TicketGate};

/// Verifies the ticket if the builder only serves a router (`gate`). Returns the client that the ticket names, if any.
pub(crate) fn check(gate: Option<&TicketGate>, ticket: &str) -> Result<Option<Client>, Box<Refuse>> {
    let Some(gate) = gate else { return Ok(None) };
    match gate.admit(ticket) {
        Ok(shown) => {
            tracing::debug!(ticket = shown.id, "ticket taken");
            Ok(shown.client)
        }
        Err(error) => Err(Box::new(Refuse {
            retry_after_ms: 0,
            sqlstate: SqlState::INVALID_AUTHORIZATION,
            message: error.to_string(),
            detail: String::new(),
            hint: "Connect to the router, which gives each build a ticket for a builder.".to_owned(),
        })),
    }
}
