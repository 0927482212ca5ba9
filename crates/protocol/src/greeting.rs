/// The version of the greeting. Both protocols share the port, so this is Lantern's.
pub const GREETING_VERSION: u32 = 1;
/// The four bytes by which a client chooses this protocol.
pub const MAGIC: [u8; 4] = *b"LIX2";
/// The four bytes by which a client chooses Lantern's protocol version 1: `0x13333337`.
pub const LANTERN_V1_MAGIC: [u8; 4] = 0x1333_3337_u32.to_le_bytes();
/// The four bytes by which a router chooses Lantern's protocol version 1 on behalf of a Lantern client.
pub const LANTERN_V1_RELAYED: [u8; 4] = *b"LIX1";
/// The version of this protocol, for [`Hello`](crate::Hello) and [`Accept`](crate::Accept).
pub const PROTOCOL_VERSION: u16 = 2;
/// The port where builders and routers listen.
pub const DEFAULT_PORT: u16 = 8998;
/// The port of the status page and metrics.
pub const DEFAULT_STATUS_PORT: u16 = 8999;

/// The kind of daemon on the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ServerType {
    /// Builds the index itself.
    Builder = 1,
    /// Finds a builder.
    Router = 2,
}

/// Bytes of a [`Greeting`].
pub const GREETING_BYTES: usize = 8;

/// The [`GREETING_BYTES`] that the server sends when it accepts a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// [`GREETING_VERSION`].
    pub version: u32,
    /// A [`ServerType`] as a number: what an unknown one means is up to the client.
    pub server_type: u32,
}

impl Greeting {
    /// A builder's greeting.
    #[must_use]
    pub fn builder() -> Self {
        Self { version: GREETING_VERSION, server_type: ServerType::Builder as u32 }
    }

    /// A router's greeting.
    #[must_use]
    pub fn router() -> Self {
        Self { version: GREETING_VERSION, server_type: ServerType::Router as u32 }
    }

    /// The bytes to send, in one segment: Lantern's clients do not loop on short reads.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; GREETING_BYTES] {
        let [v0, v1, v2, v3] = self.version.to_le_bytes();
        let [t0, t1, t2, t3] = self.server_type.to_le_bytes();
        [v0, v1, v2, v3, t0, t1, t2, t3]
    }

    /// Reads a greeting; every value is accepted.
    #[must_use]
    pub fn from_bytes(bytes: [u8; GREETING_BYTES]) -> Self {
        let [v0, v1, v2, v3, t0, t1, t2, t3] = bytes;
        Self { version: u32::from_le_bytes([v0, v1, v2, v3]), server_type: u32::from_le_bytes([t0, t1, t2, t3]) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Greeting, LANTERN_V1_MAGIC};

    #[test]
    fn bytes_are_lanterns() {
        assert_eq!(Greeting::builder().to_bytes(), [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(Greeting::router().to_bytes(), [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(Greeting::from_bytes([1, 0, 0, 0, 2, 0, 0, 0]), Greeting::router());
        assert_eq!(LANTERN_V1_MAGIC, [0x37, 0x33, 0x33, 0x13]);
    }
}
