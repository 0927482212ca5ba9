use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row};

use crate::dsn::Dsn;
use crate::error::{Error, words};
use crate::tls::Tls;

/// A session of one database.
pub(crate) struct Database {
    pub(crate) name: String,
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
        let (client, connection) = config
            .connect(tls.clone())
            .await
            .map_err(|error| Error::Connect { place: format!("{}/{name}", dsn.place()), reason: words(&error) })?;
        // It ends with the client, and its error is that of the statement under way.
        let task = tokio::spawn(async move { _ = connection.await });
        let database = Self { name: name.to_owned(), client, tls, task };
        // What others put into the path must not be taken for what is meant, and what the server limits must not end a rebuild.
        database.run("SET search_path = pg_catalog; SET statement_timeout = 0; SET lock_timeout = 0").await?;
        Ok(database)
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
        // If that cannot be, the statement goes on, and is waited for.
        _ = self.client.cancel_token().cancel_query(self.tls.clone()).await;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.task.abort();
    }
}
