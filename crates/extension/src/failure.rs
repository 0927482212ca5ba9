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
        let number =
            sqlstate.to_bytes().iter().rev().fold(0, |code, &byte| code << 6 | i32::from((byte - b'0') & 0x3f));
        let code = PgSqlErrorCode::from(number);
        let unknown = if code as i32 == number { String::new() } else { format!(" (SQLSTATE {sqlstate})") };
        Self::new(code, format!("external index build failed: {message}{unknown}")).detail(detail).hint(hint)
    }

    /// What the builder sent is not an index of the rows that it was sent.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        let message = "external indexing server sent an index that is not valid";
        Self::new(PgSqlErrorCode::ERRCODE_DATA_CORRUPTED, message)
            .detail(detail)
            .hint("This is a defect of the builder: please report it with the builder's version.")
    }

    /// The builder did not follow the protocol.
    pub(crate) fn protocol(detail: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION, "unexpected answer from external indexing server")
            .detail(detail)
            .hint("Check that hnsw.external_index_host and hnsw.external_index_port name a lantern-index builder of a compatible version.")
    }

    pub(crate) fn code(mut self, code: PgSqlErrorCode) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Whether it was the connection that failed: another builder may be better.
    pub(crate) fn is_of_connection(&self) -> bool {
        use PgSqlErrorCode::{ERRCODE_CONNECTION_FAILURE, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION};
        matches!(self.code, ERRCODE_CONNECTION_FAILURE | ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION)
    }

    /// Ends the statement.
    pub(crate) fn raise(self) -> ! {
        self.report().report(PgLogLevel::ERROR);
        unreachable!("an error does not return")
    }

    /// Says that the index is built in the database for this reason.
    pub(crate) fn warn_of_fallback(mut self) {
        self.detail = format!("{}: {}", self.message, self.detail).trim_end_matches([':', ' ']).into();
        self.message = "building the index in the database, because no builder can be had".into();
        tell(PgLogLevel::WARNING, self.report());
    }

    fn report(self) -> ErrorReport {
        // Only now: a failure may be found where PostgreSQL must not be asked for its encoding.
        let mut report = ErrorReport::new(self.code, printable(&self.message), "ambuild");
        if !self.detail.is_empty() {
            report = report.set_detail(printable(&self.detail));
        }
        if !self.hint.is_empty() {
            report = report.set_hint(printable(&self.hint));
        }
        report
    }
}

/// Tells the user something that ends nothing.
///
/// PostgreSQL ends each message with a look for interrupts, and a cancel found there would jump over our destructors, since pgrx
/// guards no messages: the socket would stay open as long as the session. So they wait until the message is out.
pub(crate) fn tell(level: PgLogLevel, report: ErrorReport) {
    // SAFETY: counted up and down in one place; an error in between resets it.
    unsafe { pg_sys::InterruptHoldoffCount += 1 };
    report.report(level);
    // SAFETY: as above.
    unsafe { pg_sys::InterruptHoldoffCount -= 1 };
    pgrx::check_for_interrupts!();
}

/// An INFO line without detail or hint.
pub(crate) fn info(message: impl Into<String>) {
    tell(PgLogLevel::INFO, information(message));
}

/// Something to tell that is no error.
pub(crate) fn information(message: impl Into<String>) -> ErrorReport {
    ErrorReport::new(PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message.into(), "ambuild")
}

/// Ends the statement on failure.
pub(crate) fn or_raise<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| failure.raise())
}

/// Texts of the builder are UTF-8, which not every database can show.
pub(crate) fn printable(text: &str) -> String {
    // SAFETY: reads the encoding of the database.
    let utf8 = unsafe { pg_sys::GetDatabaseEncoding() } == pg_sys::pg_enc::PG_UTF8 as i32;
    text.chars().map(|c| if (utf8 || c.is_ascii()) && !c.is_control() { c } else { '?' }).collect()
}

/// "connection refused (os error 111)" as "Connection refused."
pub(crate) fn sentence(text: &str) -> String {
    let text = text.split_once(" (os error").map_or(text, |(text, _)| text);
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}
