use bytes::BytesMut;

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// A router's ticket, which the client sends to the builder before its Hello.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// As in [`Redirect`](crate::Redirect); opaque to the client.
    pub ticket: String,
}

impl Ticket {
    pub(super) fn write(&self, out: &mut BytesMut) {
        put_text(out, &self.ticket);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        Ok(Self { ticket: Reader::new("Ticket", payload).text("ticket")? })
    }
}

/// Does not print the ticket, which is a secret.
impl std::fmt::Debug for Ticket {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ticket").finish_non_exhaustive()
    }
}
