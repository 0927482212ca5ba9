use protocol::{ErrorReport, Refuse, SqlState};
use service::{Client, TicketGate};

/// Verifies the ticket if the builder only serves a router (`gate`). Returns the client that the ticket names, if any.
pub(crate) fn check(gate: Option<&TicketGate>, ticket: &str) -> Result<Option<Client>, Box<Refuse>> {
    let Some(gate) = gate else { return Ok(None) };
    match gate.admit(ticket) {
        Ok(shown) => {
            tracing::debug!(ticket = shown.id, "ticket taken");
            Ok(shown.client)
        }
        Err(error) => Err(ErrorReport::new(SqlState::INVALID_AUTHORIZATION, error.to_string())
            .hint("Connect to the router, which gives each build a ticket for a builder.")
            .refuse(0)),
    }
}
