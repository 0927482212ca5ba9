use protocol::{Refuse, SqlState};
use service::TicketGate;

/// Whether a builder that belongs to a router lets the client in.
pub(crate) fn check(gate: Option<&TicketGate>, ticket: &str) -> Result<(), Box<Refuse>> {
    let Some(gate) = gate else { return Ok(()) };
    match gate.admit(ticket) {
        Ok(id) => {
            tracing::debug!(ticket = id, "ticket taken");
            Ok(())
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
