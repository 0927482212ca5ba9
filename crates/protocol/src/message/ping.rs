use bytes::BytesMut;

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// A health check, which also verifies the client's token.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Ping {
    /// The secret that the client would show; empty if it has none, or is older than this field. Older builders do not look at it.
    pub token: String,
}

impl Ping {
    pub(super) fn write(&self, out: &mut BytesMut) {
        if !self.token.is_empty() {
            put_text(out, &self.token);
        }
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        Ok(Self { token: Reader::new("Ping", payload).text_or_end("token")? })
    }
}

/// Does not print the token, which is a secret.
impl std::fmt::Debug for Ping {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ping").finish_non_exhaustive()
    }
}
