use bytes::{BufMut, BytesMut};

use crate::wire::{Reader, put_text};
use crate::{ProtocolError, SqlState};

/// The builder fails, and why. Ends the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// The error code.
    pub sqlstate: SqlState,
    /// The primary message, in one line.
    pub message: String,
    /// The detail; may be empty.
    pub detail: String,
    /// The hint; may be empty.
    pub hint: String,
}

impl ErrorReport {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_slice(&self.sqlstate.to_bytes());
        put_text(out, &self.message);
        put_text(out, &self.detail);
        put_text(out, &self.hint);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Error", payload);
        Ok(Self {
            sqlstate: reader.sqlstate("sqlstate")?,
            message: reader.text("message")?,
            detail: reader.text("detail")?,
            hint: reader.text("hint")?,
        })
    }
}

impl From<&ProtocolError> for ErrorReport {
    fn from(error: &ProtocolError) -> Self {
        Self { sqlstate: error.sqlstate(), message: error.to_string(), detail: String::new(), hint: String::new() }
    }
}
