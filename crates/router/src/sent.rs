use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use service::lock;
use tokio_util::sync::CancellationToken;

/// Tickets of redirected clients. A client that returns with its ticket could not use the builder, whose reservation can end.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    tickets: Mutex<HashMap<String, CancellationToken>>,
}

impl Sent {
    /// Remembers the ticket of a redirected client, if it has one.
    pub(crate) fn register(self: &Arc<Self>, ticket: &str) -> Away {
        let back = CancellationToken::new();
        if !ticket.is_empty() {
            lock(&self.tickets).insert(ticket.to_owned(), back.clone());
        }
        Away { sent: self.clone(), ticket: ticket.to_owned(), back }
    }

    /// Reports that a client has returned with its ticket. Tickets of other routers are ignored.
    pub(crate) fn report_return(&self, ticket: &str) {
        if let Some(back) = lock(&self.tickets).get(ticket) {
            back.cancel();
        }
    }
}

/// A redirected client. On drop its ticket is forgotten.
pub(crate) struct Away {
    sent: Arc<Sent>,
    ticket: String,
    back: CancellationToken,
}

impl Away {
    /// Waits until the client returns with its ticket.
    pub(crate) async fn returned(&self) {
        self.back.cancelled().await;
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        lock(&self.sent.tickets).remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Sent, lock};

    #[test]
    fn a_client_returns_only_with_its_own_ticket() {
        let sent = Arc::new(Sent::default());
        let [first, second, without] = ["1", "2", ""].map(|ticket| sent.register(ticket));
        for ticket in ["2", "", "3"] {
            sent.report_return(ticket);
        }
        assert_eq!([&first, &second, &without].map(|away| away.back.is_cancelled()), [false, true, false]);
        drop((first, second, without));
        assert!(lock(&sent.tickets).is_empty());
    }
}
