use anyhow::anyhow;
use database::{Database, Error};
use pgvector::{SqlColumn, ValueType};

use crate::advise::metric_of;
use crate::args::Advise;
use crate::failure::Failure;

/// A table, and what PostgreSQL knows of its size.
pub(super) struct Table {
    oid: u32,
    /// Quoted and with its schema.
    name: String,
    pub(super) blocks: i64,
    /// Rows per block at the last ANALYZE: the table may have grown since.
    pub(super) density: Option<f64>,
}

/// A column of vectors.
pub(super) struct Found {
    pub(super) column: SqlColumn,
    /// The share of rows that are NULL, as far as PostgreSQL knows.
    pub(super) null_share: f64,
}

pub(super) async fn table(database: &Database, name: &str) -> Result<Table, Failure> {
    let sql = "SELECT c.oid, c.relkind::text, quote_ident(n.nspname) || '.' || quote_ident(c.relname), \
                      pg_relation_size(c.oid) / current_setting('block_size')::bigint, \
                      CASE WHEN c.reltuples > 0 AND c.relpages > 0 THEN c.reltuples::float8 / c.relpages END \
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)";
    let rows = database.rows_with(sql, &[&name]).await?;
    let Some(row) = rows.first() else {
        let database = &database.name;
        return Err(Failure::Usage(anyhow!(
            "there is no table {name} in database \"{database}\"; name it as in SQL, with its schema unless the search path leads there"
        )));
    };
    let (kind, name): (String, String) = (row.get(1), row.get(2));
    match kind.as_str() {
        "r" | "m" => Ok(Table { oid: row.get(0), name, blocks: row.get(3), density: row.get(4) }),
        "p" => Err(Failure::Usage(anyhow!(
            "{name} is a partitioned table, and each partition has an index of its own: name one of them"
        ))),
        _ => Err(Failure::Usage(anyhow!("{name} is neither a table nor a materialized view"))),
    }
}

/// The column that is named, or the only one with vectors.
pub(super) async fn column(database: &Database, table: &Table, arguments: &Advise) -> Result<Found, Failure> {
    let (all, name) = (columns(database, table.oid).await?, &table.name);
    let listed = |columns: &mut dyn Iterator<Item = &Listed>| {
        columns.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut with_vectors = all.iter().filter(|column| column.value_type.is_some());
    let chosen = match (&arguments.column, with_vectors.clone().count()) {
        (Some(wanted), _) => all
            .iter()
            .find(|column| column.name == *wanted)
            .ok_or_else(|| anyhow!("{name} has no column \"{wanted}\"; its columns are {}", listed(&mut all.iter()))),
        (None, 1) => with_vectors.next().ok_or_else(|| anyhow!("no column")),
        (None, 0) => Err(anyhow!("{name} has no column of type vector, halfvec, bit or sparsevec")),
        (None, _) => {
            let several = listed(&mut with_vectors);
            Err(anyhow!("{name} has several columns with vectors, {several}: choose one with --column"))
        }
    };
    let Listed { name: own, quoted, type_name, schema, value_type, typmod, null_share } =
        chosen.map_err(Failure::Usage)?;
    let value_type = value_type.ok_or_else(|| {
        Failure::Usage(anyhow!(
            "column \"{own}\" of {name} is of type {type_name}; hnsw indexes are for vector, halfvec, bit and sparsevec"
        ))
    })?;
    let dims = u32::try_from(*typmod).ok().filter(|&dims| dims > 0).ok_or_else(|| {
        let type_name = value_type.name();
        Failure::Usage(anyhow!(
            "column \"{own}\" of {name} does not have dimensions, without which it cannot be indexed: \
             ALTER TABLE {name} ALTER {quoted} TYPE {type_name}(…)"
        ))
    })?;
    let column = SqlColumn {
        table: name.clone(),
        name: quoted.clone(),
        schema: schema.clone(),
        value_type,
        dims,
        metric: metric_of(arguments, value_type)?,
    };
    Ok(Found { column, null_share: *null_share })
}

/// A column of any type. pgvector has no index for domains.
struct Listed {
    name: String,
    quoted: String,
    type_name: String,
    /// Of pgvector, quoted and with a dot, if the search path does not lead there.
    schema: String,
    value_type: Option<ValueType>,
    typmod: i32,
    null_share: f64,
}

async fn columns(database: &Database, table: u32) -> Result<Vec<Listed>, Error> {
    let sql = format!(
        "SELECT a.attname::text, quote_ident(a.attname), t.typname::text, \
                coalesce((SELECT CASE WHEN pg_opclass_is_visible(o.oid) THEN '' ELSE quote_ident(n.nspname) || '.' END \
                          FROM pg_opclass o JOIN pg_am h ON h.oid = o.opcmethod AND h.amname = 'hnsw' \
                          JOIN pg_namespace n ON n.oid = o.opcnamespace ORDER BY o.oid LIMIT 1), ''), \
                a.atttypmod, coalesce(s.null_frac, 0)::float8 \
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid \
         JOIN pg_namespace m ON m.oid = c.relnamespace \
         LEFT JOIN pg_stats s ON s.schemaname = m.nspname AND s.tablename = c.relname \
                                 AND s.attname = a.attname AND NOT s.inherited \
         WHERE a.attrelid = {table} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    );
    let rows = database.rows(&sql).await?;
    let listed = rows.iter().map(|row| {
        let type_name: String = row.get(2);
        Listed {
            name: row.get(0),
            quoted: row.get(1),
            value_type: ValueType::named(&type_name),
            type_name,
            schema: row.get(3),
            typmod: row.get(4),
            null_share: row.get(5),
        }
    });
    Ok(listed.collect())
}
