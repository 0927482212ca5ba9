//! The extension's SQL functions and view: `ping`, `estimate`, `advise`, `check`, `indexes`; and who may do what with them.

mod advise;
mod check;
mod check_external;
mod check_live;
mod estimate;
mod indexes;
mod ping;
mod rights;

use std::sync::LazyLock;

use harness::{Builder, Cluster, Session};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());
static BUILDER: LazyLock<Builder> = LazyLock::new(|| Builder::start().unwrap());

/// Makes a database with the extension, and a session that uses the builder.
fn database(name: &str) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    session.execute("CREATE EXTENSION lantern_index; GRANT USAGE ON SCHEMA lantern_index TO public").unwrap();
    BUILDER.attach(&mut session).unwrap();
    session
}

/// The only row of a statement, as text.
fn row(session: &mut Session, sql: &str) -> Vec<Option<String>> {
    let mut rows = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(rows.len(), 1, "{sql}");
    rows.remove(0)
}

/// The error code and message of a statement that fails.
fn failure(session: &mut Session, sql: &str) -> (String, String) {
    let error = session.execute(sql).expect_err(sql);
    println!("{error}\n");
    (error.server().sqlstate.clone(), error.server().message.clone())
}

/// An SQL expression for reproducible random vectors, by the row number `i`.
fn vectors(dims: u32) -> String {
    format!("(SELECT array_agg(sin(i * 0.7 + i * j * 1.3 + j * j)) FROM generate_series(1, {dims}) j)::vector({dims})")
}
