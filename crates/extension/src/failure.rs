//! Failures as the user sees them.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::raised::keep_error;

pub(crate) mod context;

/// How to do without a builder, whether the option or the setting asks for one.
pub(crate) const IN_DATABASE: &str = "To build the index in the database, leave out \"external\" (for an existing index: ALTER INDEX ... RESET \
                                   (external)) and set hnsw.external_index to off.";

/// Stands for the C function that PostgreSQL's verbose messages name: builds and SQL functions raise the same errors.
pub(crate) const LIBRARY: &str = "lantern_index";

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

    /// A failure that the builder reports. Codes of class 57 for a server that ends or accepts no sessions become the class's general code:
    /// connection poolers would take them for an end of PostgreSQL itself.
    pub(crate) fn from_builder(sqlstate: protocol::SqlState, message: &str, detail: &str, hint: &str) -> Self {
        let sqlstate = match &sqlstate.to_bytes() {
            b"57P01" | b"57P02" | b"57P03" => protocol::SqlState::OPERATOR_INTERVENTION,
            _ => sqlstate,
        };
        let number =
            sqlstate.to_bytes().iter().rev().fold(0, |code, &byte| code << 6 | i32::from((byte - b'0') & 0x3f));
        let code = PgSqlErrorCode::from(number);
        let unknown = if code as i32 == number { String::new() } else { format!(" (SQLSTATE {sqlstate})") };
        Self::new(code, format!("external index build failed: {message}{unknown}")).detail(detail).hint(hint)
    }

    /// The pages from the builder are not an index of the rows it received.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        let message = "external indexing server sent an index that is not valid";
        Self::new(PgSqlErrorCode::ERRCODE_DATA_CORRUPTED, message)
            .detail(detail)
            .hint("This is a defect of the builder: please report it with the builder's version.")
    }

    /// A value of a setting that cannot be used.
    pub(crate) fn of_setting(message: String, setting: &str) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR, message).hint(format!("Check the setting {setting}."))
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

    /// What is wrong, in one line.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether the connection failed, so that another builder may be tried.
    pub(crate) fn is_of_connection(&self) -> bool {
        use PgSqlErrorCode::{ERRCODE_CONNECTION_FAILURE, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION};
        matches!(self.code, ERRCODE_CONNECTION_FAILURE | ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION)
    }

    /// Whether somebody cancelled the build.
    pub(crate) fn is_cancellation(&self) -> bool {
        self.code == PgSqlErrorCode::ERRCODE_QUERY_CANCELED
    }

    /// Adds a sentence to the hint.
    pub(crate) fn also_hint(mut self, hint: &str) -> Self {
        self.hint = format!("{} {hint}", self.hint).trim_start().into();
        self
    }

    /// Ends the statement.
    pub(crate) fn raise(self) -> ! {
        context::ours();
        self.report().report(PgLogLevel::ERROR);
        unreachable!("an error does not return")
    }

    /// Whether external builds do not support the index.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self.code, PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED)
    }

    /// Warns that the index is built in the database because of `why`, and this failure.
    pub(crate) fn warn_of_fallback(mut self, why: &str) {
        self.detail = format!("{}: {}", self.message, self.detail).trim_end_matches([':', ' ']).into();
        self.message = format!("building the index in the database, because {why}");
        context::ours();
        tell(PgLogLevel::WARNING, self.report());
        context::theirs();
    }

    fn report(self) -> ErrorReport {
        // Converted only here: failures also arise in the thread, which must not ask PostgreSQL for its encoding.
        let mut report = ErrorReport::new(self.code, printable(&self.message), LIBRARY);
        if !self.detail.is_empty() {
            report = report.set_detail(printable(&self.detail));
        }
        if !self.hint.is_empty() {
            report = report.set_hint(printable(&self.hint));
        }
        report
    }
}

/// Sends a message below ERROR.
///
/// PostgreSQL may raise an error meanwhile: it checks for interrupts after each message, and while it waits for a client that does not read.
/// pgrx does not guard that: the error would jump over our destructors, and the socket would stay open as long as the session.
pub(crate) fn tell(level: PgLogLevel, report: ErrorReport) {
    // SAFETY: the call is not guarded itself. An error leaks the texts of the report, a few bytes.
    unsafe { keep_error(|| context::only_ours(|| report.report(level))) }
}

/// An INFO about a build. PostgreSQL sends INFO regardless of `client_min_messages`, which is therefore checked here.
pub(crate) fn info(report: ErrorReport) {
    // SAFETY: reads a setting.
    let wanted = unsafe { pg_sys::client_min_messages } <= PgLogLevel::NOTICE as i32;
    tell(if wanted { PgLogLevel::INFO } else { PgLogLevel::DEBUG1 }, report);
}

/// Reports the steps of a build as INFO, or quietly as DEBUG1: of partitions, for which only the end is INFO, and of SQL functions.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) quiet: bool,
}

impl Steps {
    pub(crate) fn report(self, message: String) {
        if self.quiet { tell(PgLogLevel::DEBUG1, information(message)) } else { info(information(message)) }
    }
}

/// A report that is no error.
pub(crate) fn information(message: impl Into<String>) -> ErrorReport {
    ErrorReport::new(PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message.into(), LIBRARY)
}

/// Ends the statement on failure.
pub(crate) fn or_raise<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| failure.raise())
}

/// Replaces characters in the builder's UTF-8 texts that the database or the client cannot represent.
///
/// PostgreSQL raises an error if it cannot convert a message for the client: for a NOTICE that would end the build, and jump over
/// our destructors.
pub(crate) fn printable(text: &str) -> String {
    // SAFETY: reads the encodings of database and client.
    let (database, client) = unsafe { (pg_sys::GetDatabaseEncoding(), pg_sys::pg_get_client_encoding()) };
    let utf8 = database == pg_sys::pg_enc::PG_UTF8 as i32;
    let reduce = |all: bool| {
        text.chars().map(|c| if (all || c.is_ascii()) && !c.is_control() { c } else { '?' }).collect::<String>()
    };
    let whole = reduce(utf8);
    if whole.is_ascii() || client == database || can_be_sent(&whole) { whole } else { reduce(false) }
}

/// Whether the client's encoding has all characters of a text in the database's encoding.
fn can_be_sent(text: &str) -> bool {
    let convert = || {
        let Ok(length) = i32::try_from(text.len()) else { return false };
        // SAFETY: reads the text; what is allocated is freed with the statement.
        unsafe { pg_sys::pg_server_to_client(text.as_ptr().cast(), length) };
        true
    };
    // The expected error is that a character has no equivalent; it leaves nothing to clean up.
    PgTryBuilder::new(AssertUnwindSafe(convert)).catch_others(|_| false).execute()
}

/// "connection refused (os error 111)" as "Connection refused."
pub(crate) fn sentence(text: &str) -> String {
    let text = text.split_once(" (os error").map_or(text, |(text, _)| text);
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}
