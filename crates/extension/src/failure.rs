//! Why a build failed, as the user gets to see it.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// A message in PostgreSQL's style, with its SQLSTATE.
#[derive(Debug)]
pub(crate) struct Failure {
    code: PgSqlErrorCode,
    message: String,
    detail: String,
    hint: String,
}

impl Failure {
    pub(crate) fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: String::new(), hint: String::new() }
    }

    /// What came from the builder.
    pub(crate) fn from_builder(sqlstate: protocol::SqlState, message: &str, detail: &str, hint: &str) -> Self {
        let code = sqlstate.to_bytes().iter().rev().fold(0, |code, &byte| code << 6 | i32::from((byte - b'0') & 0x3f));
        Self::new(code.into(), format!("external index build failed: {message}")).detail(detail).hint(hint)
    }

    /// The builder did not follow the protocol.
    pub(crate) fn protocol(detail: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION, "unexpected answer from external indexing server")
            .detail(detail)
            .hint("Check that hnsw.external_index_host and hnsw.external_index_port name a lantern-index builder of a compatible version.")
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Ends the statement.
    pub(crate) fn raise(self) -> ! {
        let mut report = ErrorReport::new(self.code, self.message, "ambuild");
        if !self.detail.is_empty() {
            report = report.set_detail(self.detail);
        }
        if !self.hint.is_empty() {
            report = report.set_hint(self.hint);
        }
        report.report(PgLogLevel::ERROR);
        unreachable!("an error does not return")
    }
}

/// Ends the statement on failure.
pub(crate) fn or_raise<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| failure.raise())
}
