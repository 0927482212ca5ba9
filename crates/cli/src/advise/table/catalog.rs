use anyhow::anyhow;
use database::{Database, Error};
use pgvector::{SCHEMA, SqlColumn, ValueType};

use crate::advise::metric_of;
use crate::args::Advise;
use crate::failure::Failure;

/// PostgreSQL's equality operator. The search path is the user's, since it resolves names of tables; everything else is named with its
/// schema, so that no functions and operators of other schemas run with the user's rights.
const EQ: &str = "OPERATOR(pg_catalog.=)";

/// A table, with its statistics.
pub(super) struct Table {
    pub(super) oid: u32,
    /// Qualified by its schema, and quoted.
    name: String,
    pub(super) blocks: i64,
    /// Rows per block at the last ANALYZE: the table may have grown since.
    pub(super) density: Option<f64>,
}

/// A column of vectors.
pub(super) struct Found {
    pub(super) column: SqlColumn,
    /// The fraction of rows that are NULL, according to the statistics.
    pub(super) null_share: f64,
}

pub(super) async fn table(database: &Database, name: &str) -> Result<Table, Failure> {
    let sql = format!(
        "SELECT c.oid, c.relkind::pg_catalog.text, pg_catalog.format('%I.%I', n.nspname, c.relname), \
                coalesce(pg_catalog.pg_relation_size(c.oid::pg_catalog.regclass), 0), \
                pg_catalog.current_setting('block_size')::pg_catalog.int8, c.reltuples, c.relpages \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid {EQ} c.relnamespace \
         WHERE c.oid {EQ} pg_catalog.to_regclass($1)::pg_catalog.oid"
    );
    let rows = database.rows_with(&sql, &[&name]).await?;
    let Some(row) = rows.first() else {
        let database = &database.name;
        return Err(Failure::Usage(anyhow!(
            "there is no table {name} in database \"{database}\"; name it as in SQL, with its schema unless the search path leads there"
        )));
    };
    let (kind, name): (String, String) = (row.get(1), row.get(2));
    match kind.as_str() {
        "r" | "m" => {
            let (bytes, block_size): (i64, i64) = (row.get(3), row.get(4));
            let (tuples, pages): (f32, i32) = (row.get(5), row.get(6));
            let density = (tuples > 0.0 && pages > 0).then(|| f64::from(tuples) / f64::from(pages));
            Ok(Table { oid: row.get(0), name, blocks: bytes / block_size, density })
        }
        "p" => Err(Failure::Usage(anyhow!(
            "{name} is a partitioned table, and each partition has an index of its own: name one of them"
        ))),
        _ => Err(Failure::Usage(anyhow!("{name} is neither a table nor a materialized view"))),
    }
}

/// The named column, or the only one with vectors.
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

/// A column of any type. Domains count as other types: pgvector has no operator classes for them.
struct Listed {
    name: String,
    quoted: String,
    type_name: String,
    /// pgvector's schema, quoted and with a dot; empty if the search path contains it.
    schema: String,
    value_type: Option<ValueType>,
    typmod: i32,
    null_share: f64,
}

async fn columns(database: &Database, table: u32) -> Result<Vec<Listed>, Error> {
    let sql = format!(
        "SELECT a.attname::pg_catalog.text, pg_catalog.quote_ident(a.attname::pg_catalog.text), \
                t.typname::pg_catalog.text, coalesce(({SCHEMA}), ''), a.atttypmod, s.null_frac \
         FROM pg_catalog.pg_attribute a \
         JOIN pg_catalog.pg_class c ON c.oid {EQ} a.attrelid \
         JOIN pg_catalog.pg_type t ON t.oid {EQ} a.atttypid \
         JOIN pg_catalog.pg_namespace m ON m.oid {EQ} c.relnamespace \
         LEFT JOIN pg_catalog.pg_stats s ON s.schemaname {EQ} m.nspname AND s.tablename {EQ} c.relname \
                                            AND s.attname {EQ} a.attname AND NOT s.inherited \
         WHERE a.attrelid {EQ} '{table}'::pg_catalog.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped \
         ORDER BY a.attnum"
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
            null_share: row.get::<_, Option<f32>>(5).map_or(0.0, f64::from),
        }
    });
    Ok(listed.collect())
}
