use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// A router's answer to Hello: the address of the builder that takes the build. Ends the session.
#[derive(Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The builder's port.
    pub port: u16,
    /// The builder's name or address.
    pub host: String,
    /// The name in the builder's certificate; empty = the name for which the router's certificate was verified.
    pub server_name: String,
    /// The [`Ticket`](crate::Ticket) to send to the builder; empty = none.
    pub ticket: String,
}

impl Redirect {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u16_le(self.port);
        put_text(out, &self.host);
        put_text(out, &self.server_name);
        put_text(out, &self.ticket);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Redirect", payload);
        Ok(Self {
            port: reader.u16("port")?,
            host: reader.text("host")?,
            server_name: reader.text("server_name")?,
            ticket: reader.text("ticket")?,
        })
    }
}

/// All fields but the ticket.
impl std::fmt::Debug for Redirect {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Redirect")
            .field("port", &self.port)
            .field("host", &self.host)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}
