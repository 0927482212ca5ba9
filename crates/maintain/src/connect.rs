use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row};

use crate::dsn::Dsn;
use crate::error::{Error, words};
use crate::tls::Tls;

/// A session of one database.
pub(crate) struct Database {
    pub(crate) name: String,
    /// The process id of the server's backend.
    pub(crate) pid: i32,
    client: Client,
    tls: Tls,
    task: JoinHandle<()>,
}

impl Database {
    pub(crate) async fn open(dsn: &Dsn, name: &str) -> Result<Self, Error> {
        let tls = Tls::new(dsn)?;
        let mut config = dsn.config(name)?;
        if dsn.host().starts_with('/') {
            // As libpq: a socket of this machine is not encrypted.
            config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        }
        let failed = |error: tokio_postgres::Error| {
            let mut reason = words(&error);
            if reason.contains("password missing") {
                reason = "the server asks for a password: PGPASSWORD, a password file (~/.pgpass, PGPASSFILE) or the connection \
                          string must have it"
                    .to_owned();
            }
            Error::Connect { place: format!("{}/{name}", dsn.place()), reason }
        };
        let (client, connection) = config.connect(tls.clone()).await.map_err(failed)?;
        // The task ends with the client; a connection error also reaches the statement that runs.
        let task = tokio::spawn(async move { _ = connection.await });
        let mut database = Self { name: name.to_owned(), pid: 0, client, tls, task };
        // Objects in other schemas must not shadow the catalog's, and the server's timeouts must end neither a rebuild nor the session
        // that holds the lock. Not every release has all four settings.
        database.run("SET search_path = pg_catalog").await?;
        let unlimited = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN \
                         ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')";
        database.rows(unlimited).await?;
        database.pid = database.value("SELECT pg_backend_pid()").await?;
        Ok(database)
    }

    /// Whether the connection is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    pub(crate) async fn run(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await.map_err(|error| Error::statement(&self.name, &error))
    }

    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<Row>, Error> {
        self.client.query(sql, &[]).await.map_err(|error| Error::statement(&self.name, &error))
    }

    /// One value of one row.
    pub(crate) async fn value<T>(&self, sql: &str) -> Result<T, Error>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let row = self.client.query_one(sql, &[]).await.map_err(|error| Error::statement(&self.name, &error))?;
        row.try_get(0).map_err(|error| Error::statement(&self.name, &error))
    }

    /// Ends the statement that is under way, if there is one.
    pub(crate) async fn cancel(&self) {
        // If the request fails, the statement goes on, and the caller waits for it.
        _ = self.client.cancel_token().cancel_query(self.tls.clone()).await;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.task.abort();
    }
}
