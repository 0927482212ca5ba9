use database::{Database, Dsn, Error};

/// Objects in other schemas must not shadow the catalog's, settings of the role must not hide the warnings of a rebuild, and those of the
/// database must not change how literals are read.
const OPTIONS: &str = "-c search_path=pg_catalog -c client_min_messages=warning -c standard_conforming_strings=on";

/// Opens a session that no timeout of the server ends.
pub(crate) async fn open(dsn: &Dsn, name: &str) -> Result<Database, Error> {
    // A pooler that shares its connections among clients refuses options, or ignores them. SET would last on its connection, for the next
    // client.
    let database = Database::open(&dsn.with_options(OPTIONS), name, "lantern-index maintain").await?;
    if database.value::<String>("SELECT pg_catalog.current_setting('search_path')").await? != "pg_catalog" {
        let reason = "a connection pooler ignores the session's options: connect to PostgreSQL itself".to_owned();
        return Err(Error::Connect { place: format!("{}/{name}", dsn.place()), reason });
    }
    // The server's timeouts must end neither a rebuild nor the session that holds the lock. Not every release has all four settings.
    let unlimited = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN \
                     ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')";
    database.rows(unlimited).await?;
    Ok(database)
}
