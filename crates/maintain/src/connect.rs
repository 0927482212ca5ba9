use database::{Database, Dsn, Error};

/// Opens a session that no timeout of the server ends.
pub(crate) async fn open(dsn: &Dsn, name: &str) -> Result<Database, Error> {
    let database = Database::open(dsn, name, "lantern-index maintain").await?;
    // Objects in other schemas must not shadow the catalog's, and the server's timeouts must end neither a rebuild nor the session that
    // holds the lock. Not every release has all four settings.
    database.run("SET search_path = pg_catalog").await?;
    // Settings of the role must not hide the warnings of a rebuild.
    database.run("SET client_min_messages = warning").await?;
    let unlimited = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN \
                     ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')";
    database.rows(unlimited).await?;
    Ok(database)
}
