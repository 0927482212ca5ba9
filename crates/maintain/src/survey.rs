use serde::Serialize;

use crate::connect::Database;
use crate::dsn::Dsn;
use crate::error::Error;

/// An hnsw index, as `lantern_index.indexes` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Index {
    /// Of which database.
    pub database: String,
    /// Quoted and with its schema, for statements.
    pub index: String,
    /// The same of its table.
    pub table: String,
    /// The name alone.
    #[serde(skip)]
    pub name: String,
    /// Bytes; 0 if not known.
    pub size: i64,
    /// Dead rows of the table, as a share.
    pub dead_share: f64,
    /// Elements without rows, as a share.
    pub deleted_share: f64,
    /// Whether searches may use it.
    pub valid: bool,
    /// The view's word.
    pub advice: String,
    /// And why.
    pub reason: String,
}

/// The databases to look at: the one that is named, or all that take connections.
pub(crate) async fn databases(dsn: &Dsn) -> Result<Vec<String>, Error> {
    if let Some(name) = dsn.database() {
        return Ok(vec![name.to_owned()]);
    }
    let postgres = Database::open(dsn, "postgres").await?;
    let sql = "SELECT datname::text FROM pg_database WHERE datallowconn AND NOT datistemplate \
               AND has_database_privilege(oid, 'CONNECT') ORDER BY 1";
    Ok(postgres.rows(sql).await?.iter().map(|row| row.get(0)).collect())
}

/// The hnsw indexes of a database. Without the extension they are found all the same, and nothing is known of them but whether they are
/// valid.
pub(crate) async fn indexes(database: &Database) -> Result<Vec<Index>, Error> {
    let has_view = "SELECT to_regclass('lantern_index.indexes') IS NOT NULL";
    let (columns, view) = if database.value::<bool>(has_view).await? {
        (
            "coalesce(v.size, 0), coalesce(v.dead_share, 0), coalesce(v.deleted_share, 0), v.advice, coalesce(v.reason, '')",
            "JOIN lantern_index.indexes v ON v.index_name = i.indexrelid",
        )
    } else {
        (
            "pg_relation_size(i.indexrelid), 0::float8, 0::float8, \
             CASE WHEN i.indisvalid AND i.indisready THEN 'unknown' ELSE 'invalid' END, \
             'CREATE EXTENSION lantern_index is missing here'",
            "",
        )
    };
    // Names with their schema, since the path has none.
    let sql = format!(
        "SELECT i.indexrelid::regclass::text, i.indrelid::regclass::text, c.relname::text, \
                i.indisvalid AND i.indisready, {columns} \
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid AND c.relkind = 'i' \
         JOIN pg_am a ON a.oid = c.relam AND a.amname = 'hnsw' {view} ORDER BY 1"
    );
    let rows = database.rows(&sql).await?;
    Ok(rows
        .iter()
        .map(|row| Index {
            database: database.name.clone(),
            index: row.get(0),
            table: row.get(1),
            name: row.get(2),
            valid: row.get(3),
            size: row.get(4),
            dead_share: row.get(5),
            deleted_share: row.get(6),
            advice: row.get(7),
            reason: row.get(8),
        })
        .collect())
}
