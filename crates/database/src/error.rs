use thiserror::Error;

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
        Self::Statement { database: database.to_owned(), reason: words(error) }
    }
}

/// The server's message with detail and hint; the error's `Display` omits both.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => {
            let more = [server.detail(), server.hint()].into_iter().flatten().map(|text| format!(" ({text})"));
            format!("{}{}", server.message(), more.collect::<String>())
        }
        None => {
            let cause = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
            format!("{error}{cause}")
        }
    }
}
