use bytes::{BufMut, BytesMut};

use crate::wire::{Reader, put_text};
use crate::{ProtocolError, SqlState};

/// The builder refuses the build. Ends the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Milliseconds after which to try again; 0 = trying again does not help.
    pub retry_after_ms: u32,
    /// The error code.
    pub sqlstate: SqlState,
    /// The primary message, in one line.
    pub message: String,
    /// The detail; may be empty.
    pub detail: String,
    /// The hint; may be empty.
    pub hint: String,
}

impl Refuse {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u32_le(self.retry_after_ms);
        out.put_slice(&self.sqlstate.to_bytes());
        put_text(out, &self.message);
        put_text(out, &self.detail);
        put_text(out, &self.hint);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Refuse", payload);
        Ok(Self {
            retry_after_ms: reader.u32("retry_after_ms")?,
            sqlstate: reader.sqlstate("sqlstate")?,
            message: reader.text("message")?,
            detail: reader.text("detail")?,
            hint: reader.text("hint")?,
        })
    }
}
