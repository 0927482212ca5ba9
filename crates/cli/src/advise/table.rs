//! Samples a table as `lantern_index.advise()` does, but with nothing more than pgvector in the database.

mod catalog;
mod value;

use std::path::Path;

use advise::Values;
use anyhow::{Context, anyhow};
use database::{Database, Dsn, Error};
use pgvector::{HIDDEN_ROWS, SqlColumn, has_class, has_other_types, hides_rows, rows_found, sample_size};

use self::catalog::Table;
use super::sample::Sample;
use crate::args::Advise;
use crate::failure::{Failure, note};

/// Reads the rows, and the results of the SELECT for queries.
pub(super) fn read(arguments: &Advise, table: &str) -> Result<Sample, Failure> {
    let text = arguments.source.as_deref().map_or(Some(""), Path::to_str);
    let text = text.context("the connection string is not in UTF-8").map_err(Failure::Usage)?;
    let dsn = Dsn::parse(text).map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(sample(arguments, &dsn, table))
}

async fn sample(arguments: &Advise, dsn: &Dsn, table: &str) -> Result<Sample, Failure> {
    let database = Database::open(dsn, dsn.database_or_default(), "lantern-index advise").await?;
    database.run("BEGIN READ ONLY").await?;
    let sample = in_transaction(arguments, &database, table).await;
    // Without it the server would log that the connection ended within a transaction.
    _ = database.run("ROLLBACK").await;
    sample
}

async fn in_transaction(arguments: &Advise, database: &Database, table: &str) -> Result<Sample, Failure> {
    let table = catalog::table(database, table).await?;
    if database.value(&hides_rows(table.oid)).await? {
        note(HIDDEN_ROWS);
    }
    let found = catalog::column(database, &table, arguments).await?;
    let column = found.column;
    let class = column.metric.operator_class(column.value_type);
    if !database.value::<bool>(&has_class(&class)).await? {
        return Err(Failure::Usage(anyhow!("this pgvector has no operator class {class} for hnsw indexes")));
    }
    let queries = match &arguments.queries {
        None => Values::new(column.value_type, column.dims),
        Some(select) => {
            let select = select.to_str().context("--queries is not in UTF-8").map_err(Failure::Usage)?;
            let sql = column.queries(select, advise::most_queries(arguments.k.into()) as u32);
            let queries = match values(database, &column, &sql).await {
                // If the session is still alive, the server has rejected the SELECT. The caller ends the transaction that CHAIN begins.
                Err(Failure::Other(error)) if database.run("ROLLBACK AND CHAIN").await.is_ok() => {
                    return Err(Failure::Usage(error.context("--queries")));
                }
                found => found?,
            };
            if queries.is_empty() {
                return Err(Failure::Usage(anyhow!("--queries return no values")));
            }
            queries
        }
    };
    let estimate = rows(database, &table, &column, found.null_share).await?;
    let most = sample_size(arguments.max_rows, arguments.k, estimate);
    let values = values(database, &column, &column.sample(most, estimate)).await?;
    let read = values.len() as u64;
    if read == 0 {
        let message = format!("column {} of {} has no values to try indexes on", column.name, column.table);
        return Err(Failure::Usage(anyhow!(message)));
    }
    Ok(Sample {
        value_type: column.value_type,
        metric: column.metric,
        dims: column.dims,
        rows: rows_found(most, estimate, read),
        values,
        queries,
        own_type: !database.value::<bool>(&has_other_types()).await?,
        column: Some(column),
    })
}

/// Estimates the number of the table's rows with a value.
async fn rows(database: &Database, table: &Table, column: &SqlColumn, null_share: f64) -> Result<u64, Error> {
    let blocks = table.blocks as f64;
    let counted = database.value::<i64>(&column.count(blocks)).await?;
    let by_statistics = table.density.map(|density| density * blocks * (1.0 - null_share));
    Ok(SqlColumn::rows(blocks, counted, by_statistics))
}

/// The values that a query returns, encoded as in an index.
async fn values(database: &Database, column: &SqlColumn, sql: &str) -> Result<Values, Failure> {
    let (mut all, mut bytes, mut problem) = (Values::new(column.value_type, column.dims), Vec::new(), None);
    let visit = |value: &[u8]| {
        bytes.clear();
        match value::decode(column.value_type, column.dims, value, &mut bytes) {
            Ok(()) => all.extend(&bytes, [bytes.len()]),
            Err(error) => problem = Some(error),
        }
    };
    database.for_each(sql, visit).await?;
    problem.map_or(Ok(all), |error| Err(Failure::Usage(error.context(column.name.clone()))))
}
