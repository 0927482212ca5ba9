use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// A router's answer to Hello: where the builder is that takes the build. Ends the session.
#[derive(Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The builder's port.
    pub port: u16,
    /// The builder's name or address.
    pub host: String,
    /// The name that the builder's certificate is for; empty = the one that the router's was checked for.
    pub server_name: String,
    /// What to show the builder, in a [`Ticket`](crate::Ticket); empty = nothing.
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
