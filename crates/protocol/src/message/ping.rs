use bytes::BytesMut;

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// A health check, which also verifies the client's token.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Ping {
    /// The token that the client would send in a Hello, empty if it has none. `None` for a health check only. Older builders
    /// answer an empty token as a health check, and the oldest ignore the token.
    pub token: Option<String>,
}

impl Ping {
    pub(super) fn write(&self, out: &mut BytesMut) {
        if let Some(token) = &self.token {
            put_text(out, token);
        }
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Ping", payload);
        Ok(Self { token: (!payload.is_empty()).then(|| reader.text("token")).transpose()? })
    }
}

/// Does not print the token, which is a secret.
impl std::fmt::Debug for Ping {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ping").finish_non_exhaustive()
    }
}
