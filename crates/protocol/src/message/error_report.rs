use bytes::{BufMut, BytesMut};

use crate::wire::{Reader, put_text};
use crate::{ProtocolError, Refuse, SqlState};

/// Why the builder fails. Ends the session.
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
    /// A report without detail and hint.
    #[must_use]
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: String::new(), hint: String::new() }
    }

    /// With this detail.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// With this hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// The refusal for this reason. Boxed, as it is usually returned as an error.
    #[must_use]
    pub fn refuse(self, retry_after_ms: u32) -> Box<Refuse> {
        Box::new(Refuse { retry_after_ms, report: self })
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_slice(&self.sqlstate.to_bytes());
        put_text(out, &self.message);
        put_text(out, &self.detail);
        put_text(out, &self.hint);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        Self::read_from(&mut Reader::new("Error", payload))
    }

    pub(super) fn read_from(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
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
        Self::new(error.sqlstate(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorReport;
    use crate::SqlState;

    #[test]
    fn detail_and_hint_leave_the_rest() {
        let report = ErrorReport::new(SqlState::PROTOCOL_VIOLATION, "message").detail("detail").hint("hint");
        assert_eq!(report.sqlstate, SqlState::PROTOCOL_VIOLATION);
        assert_eq!([report.message, report.detail, report.hint], ["message", "detail", "hint"]);
    }
}
