use super::V1Error;
use crate::LANTERN_V1_RELAYED;

/// What a client sends to a router in place of [`Init`](super::Init), before it waits for an address.
pub const GIVE_ME_A_SERVER: [u8; 4] = 3_u32.to_le_bytes();

/// The most bytes of an address. Clients have a buffer of 1024 bytes and do not check the length.
pub const MAX_ADDRESS_BYTES: usize = 1000;

/// The most bytes of a ticket in [`relayed`].
pub const MAX_TICKET_BYTES: usize = 1000;

/// What a relaying router first sends to a builder: the magic, and the ticket as a text. The client's bytes follow,
/// from those after its choice. `None` if the ticket is longer than [`MAX_TICKET_BYTES`].
#[must_use]
pub fn relayed(ticket: &str) -> Option<Vec<u8>> {
    let length = u16::try_from(ticket.len()).ok().filter(|&length| usize::from(length) <= MAX_TICKET_BYTES)?;
    Some([&LANTERN_V1_RELAYED[..], &length.to_le_bytes(), ticket.as_bytes()].concat())
}

/// A router's answer: the address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Whether the client must use TLS.
    pub secure: bool,
    /// A name or an IPv4 address: clients open IPv4 sockets only.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ServerAddress {
    /// The bytes to send, in one segment.
    ///
    /// # Errors
    /// [`V1Error::Address`] if the host is empty, contains a NUL or is too long for the client.
    pub fn to_bytes(&self) -> Result<Vec<u8>, V1Error> {
        let host = self.host.as_bytes();
        let length = u32::try_from(host.len()).unwrap_or(u32::MAX);
        if host.is_empty() || host.len() > MAX_ADDRESS_BYTES || host.contains(&0) {
            return Err(V1Error::Address(host.len()));
        }
        let secure = u32::from(self.secure).to_le_bytes();
        Ok([&secure[..], &length.to_le_bytes(), host, &u32::from(self.port).to_le_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_ADDRESS_BYTES, MAX_TICKET_BYTES, ServerAddress, relayed};
    use crate::v1::V1Error;

    #[test]
    fn addresses_fit_the_clients_buffer() {
        let address = |host: &str| ServerAddress { secure: true, host: host.to_owned(), port: 8998 }.to_bytes();
        assert_eq!(address("b1").unwrap(), b"\x01\0\0\0\x02\0\0\0b1\x26\x23\0\0");
        assert_eq!(address(&"x".repeat(MAX_ADDRESS_BYTES)).unwrap().len(), 12 + MAX_ADDRESS_BYTES);
        assert_eq!(address(&"x".repeat(MAX_ADDRESS_BYTES + 1)), Err(V1Error::Address(1001)));
        assert_eq!(address(""), Err(V1Error::Address(0)));
        assert_eq!(address("a\0b"), Err(V1Error::Address(3)));
    }

    #[test]
    fn a_relayed_connection_begins_with_the_ticket() {
        assert_eq!(relayed("t1").unwrap(), b"LIX1\x02\0t1");
        assert_eq!(relayed("").unwrap(), b"LIX1\0\0");
        assert_eq!(relayed(&"x".repeat(MAX_TICKET_BYTES + 1)), None);
    }
}
