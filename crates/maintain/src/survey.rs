use std::collections::BTreeMap;

use database::{Database, Dsn, Error};
use serde::Serialize;

use crate::connect::open;
use crate::plan::is_leftover;

/// An hnsw index, as `lantern_index.indexes` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Index {
    /// Host and port of the server, as the connection string names them.
    pub server: String,
    /// The database it is in.
    pub database: String,
    /// Finds the index again after it is renamed, but not after REINDEX CONCURRENTLY, which makes a new one.
    #[serde(skip)]
    pub oid: u32,
    /// The oid of its table.
    #[serde(skip)]
    pub table_oid: u32,
    /// Quoted and with its schema, for statements.
    pub index: String,
    /// Its table, quoted and with its schema.
    pub table: String,
    /// Its name without schema or quotes.
    #[serde(skip)]
    pub name: String,
    /// Bytes; 0 if not known.
    pub size: i64,
    /// Dead rows of the table, as a share.
    pub dead_share: f64,
    /// Elements whose rows are all deleted, as a share.
    pub deleted_share: f64,
    /// Whether searches may use it.
    pub valid: bool,
    /// Whether a DROP INDEX CONCURRENTLY of it has begun and did not end.
    #[serde(skip)]
    pub dropped: bool,
    /// The view's advice.
    pub advice: String,
    /// The view's reason for its advice.
    pub reason: String,
}

/// The database that the connection string names, or all that accept connections.
pub(crate) async fn databases(dsn: &Dsn) -> Result<Vec<String>, Error> {
    if let Some(name) = dsn.database() {
        return Ok(vec![name.to_owned()]);
    }
    // If there is no database "postgres", PostgreSQL's own tools use template1, too.
    let database = match open(dsn, "postgres").await {
        Err(error) => open(dsn, "template1").await.map_err(|_| error)?,
        Ok(database) => database,
    };
    // An interrupted DROP DATABASE sets datconnlimit to -2: nobody can connect to what it leaves.
    let sql = "SELECT datname::text FROM pg_database WHERE datallowconn AND datconnlimit <> -2 AND NOT datistemplate \
               AND has_database_privilege(oid, 'CONNECT') ORDER BY 1";
    Ok(database.rows(sql).await?.iter().map(|row| row.get(0)).collect())
}

/// The hnsw indexes of a database. Without the extension only their size is known, and whether they are valid.
pub(crate) async fn indexes(database: &Database) -> Result<Vec<Index>, Error> {
    select(database, "").await
}

/// One index, if it still exists. The view reads pages of every index it is queried for, so a step queries only its own index.
pub(crate) async fn index(database: &Database, oid: u32) -> Result<Option<Index>, Error> {
    Ok(select(database, &format!("WHERE i.indexrelid = {oid}")).await?.pop())
}

/// Whether the view is the extension's. Anybody who may create a schema can make a view of this name, whose functions would run with the
/// rights of whoever reads it: the extension and its view belong to superusers, who alone can create them.
const HAS_VIEW: &str = "SELECT EXISTS (
    SELECT FROM pg_extension e
    JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
    JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
    WHERE e.extname = 'lantern_index' AND c.oid = to_regclass('lantern_index.indexes')
      AND (SELECT bool_and(r.rolsuper) FROM pg_roles r WHERE r.oid IN (e.extowner, c.relowner)))";

/// The view's condition that another session is building the index `i`.
const BUILDING: &str = "NOT i.indisvalid AND EXISTS ( SELECT FROM pg_locks l \
    WHERE l.locktype = 'relation' AND l.relation = i.indrelid AND l.granted \
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'AccessExclusiveLock') AND l.pid <> pg_backend_pid() \
    AND l.pid NOT IN ( \
        SELECT a.pid FROM pg_stat_activity a JOIN pg_stat_progress_vacuum p ON p.pid IN (a.pid, a.leader_pid) \
        UNION ALL SELECT pid FROM pg_stat_progress_analyze))";

async fn select(database: &Database, condition: &str) -> Result<Vec<Index>, Error> {
    let (columns, view) = if database.value::<bool>(HAS_VIEW).await? {
        (
            "coalesce(v.size, 0), coalesce(v.dead_share, 0), coalesce(v.deleted_share, 0), v.advice, coalesce(v.reason, '')",
            "JOIN lantern_index.indexes v ON v.index_name = i.indexrelid",
        )
    } else {
        (
            // As in the view, nothing waits for a lock, as pg_relation_size would.
            &*format!(
                "c.relpages * current_setting('block_size')::bigint, 0::float8, 0::float8, \
             CASE WHEN i.indisvalid AND i.indisready THEN 'unknown' \
                  WHEN {BUILDING} THEN 'building' \
                  ELSE 'invalid' END, \
             CASE WHEN EXISTS (SELECT FROM pg_extension WHERE extname = 'lantern_index') \
                  THEN 'the extension lantern_index, or its view, does not belong to a superuser' \
                  ELSE 'CREATE EXTENSION lantern_index is missing here' END"
            ),
            "",
        )
    };
    // With `search_path` = pg_catalog, names come with their schema. Only its own session can do anything about a temporary index.
    let sql = format!(
        "SELECT i.indexrelid::regclass::text, i.indrelid::regclass::text, c.relname::text, \
                i.indisvalid AND i.indisready, {columns}, i.indexrelid, i.indrelid, NOT i.indislive \
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid AND c.relkind = 'i' AND c.relpersistence <> 't' \
         JOIN pg_am a ON a.oid = c.relam AND a.amname = 'hnsw' {view} {condition} ORDER BY 1"
    );
    let rows = database.rows(&sql).await?;
    Ok(rows
        .iter()
        .map(|row| Index {
            server: database.server.clone(),
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
            oid: row.get(9),
            table_oid: row.get(10),
            dropped: row.get(11),
        })
        .collect())
}

/// Invalid indexes of a table with names that REINDEX CONCURRENTLY gives, by oid: leftovers, unless another session builds them.
pub(crate) async fn leftovers(database: &Database, table: u32) -> Result<BTreeMap<u32, String>, Error> {
    let sql = format!(
        "SELECT i.indexrelid, i.indexrelid::regclass::text, c.relname::text \
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'hnsw' \
         WHERE i.indrelid = {table} AND NOT (i.indisvalid AND i.indisready)"
    );
    let rows = database.rows(&sql).await?;
    let left = rows.iter().filter(|row| is_leftover(row.get(2)));
    Ok(left.map(|row| (row.get(0), row.get(1))).collect())
}

/// Messages for a person to read first.
pub(crate) async fn notes(database: &Database) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    if !database.value::<bool>("SELECT pg_has_role('pg_read_all_stats', 'USAGE')").await? {
        notes.push(format!(
            "database \"{}\": this role cannot see other sessions' transactions and replicas, for which a rebuild may have to wait: \
             GRANT pg_monitor",
            database.name
        ));
    }
    let unused =
        "SELECT slot_name::text FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL ORDER BY 1";
    for row in database.rows(unused).await? {
        let slot: String = row.get(0);
        notes.push(format!(
            "replication slot \"{slot}\" is not in use: the server keeps all WAL for it, that of a rebuild as well"
        ));
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::BUILDING;

    #[test]
    fn an_index_is_being_built_as_in_the_view() {
        let sql = include_str!("../../extension/sql/lantern_index--0.1.0.sql");
        let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(sql.contains(&format!("LATERAL ( SELECT {BUILDING} ) b (building)")), "{BUILDING}");
    }
}
