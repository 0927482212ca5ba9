use thiserror::Error;
use tokio_postgres::error::DbError;

/// Why a session could not begin or continue.
#[derive(Debug, Error)]
pub enum Error {
    /// The connection string is invalid.
    #[error("connection string: {0}")]
    Dsn(String),
    /// A file that the connection string refers to cannot be read.
    #[error("cannot read {path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The connection failed.
    #[error("cannot connect to {place}: {reason}")]
    Connect {
        /// Host and database.
        place: String,
        /// The reason.
        reason: String,
    },
    /// A statement failed.
    #[error("database \"{database}\": {reason}")]
    Statement {
        /// The database of the session.
        database: String,
        /// The server's message, with its hint.
        reason: String,
    },
}

impl Error {
    pub(crate) fn statement(database: &str, error: &tokio_postgres::Error) -> Self {
        Self::Statement { database: database.to_owned(), reason: describe(error) }
    }
}

/// The driver's error with its cause, or the server's message.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(server) = error.as_db_error() {
        return message(server);
    }
    let cause = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{cause}")
}

/// The server's message with detail and hint; its `Display` omits both.
pub(crate) fn message(server: &DbError) -> String {
    let more = [server.detail(), server.hint()].into_iter().flatten().map(|text| format!(" ({text})"));
    format!("{}{}", server.message(), more.collect::<String>())
}
