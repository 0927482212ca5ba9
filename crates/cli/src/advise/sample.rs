use std::path::Path;

use advise::Values;
use anyhow::{Context, anyhow};
use pgvector::{Metric, SqlColumn, ValueType};

use super::metric_of;
use crate::args::Advise;
use crate::failure::Failure;
use crate::vectors;

/// The input of the trial: vectors to index, and queries.
pub(super) struct Sample {
    pub(super) value_type: ValueType,
    pub(super) metric: Metric,
    pub(super) dims: u32,
    /// Rows with a value in the whole file or table.
    pub(super) rows: u64,
    pub(super) values: Values,
    /// Empty if some of the values are to be held out as queries.
    pub(super) queries: Values,
    /// Whether only the column's own type may be recommended, since this pgvector lacks the others.
    pub(super) own_type: bool,
    /// The column to index; `None` if it is unknown.
    pub(super) column: Option<SqlColumn>,
}

/// Reads the vectors of a file.
pub(super) fn of_file(arguments: &Advise) -> Result<Sample, Failure> {
    let path = arguments.source.as_deref().context("there is no file")?;
    if is_connection_string(path) {
        // The text may contain a password, so the message does not repeat it.
        let message = "there is no such file; if this is a connection string, of which table? Name it with --table";
        return Err(Failure::Usage(anyhow!(message)));
    }
    let value_type = ValueType::Vector;
    let metric = metric_of(arguments, value_type)?;
    let read = |path: &Path, most| {
        vectors::sample(path, arguments.column.as_deref(), most)
            .with_context(|| path.display().to_string())
            .map_err(Failure::Usage)
    };
    let found = read(path, arguments.max_rows)?;
    let values = |values: &[u8]| {
        let mut all = Values::new(value_type, found.dims);
        all.extend(values, []);
        all
    };
    let mut has_columns = found.has_columns;
    let queries = match &arguments.queries {
        None => values(&[]),
        Some(path) => {
            let queries = read(path, advise::most_queries(arguments.k.into()) as u64)?;
            has_columns |= queries.has_columns;
            if queries.dims != found.dims {
                let message = anyhow!("{} has {} dimensions, not {}", path.display(), queries.dims, found.dims);
                return Err(Failure::Usage(message));
            }
            values(&queries.values)
        }
    };
    if arguments.column.is_some() && !has_columns {
        return Err(Failure::Usage(anyhow!("--column is for tables and Parquet files, and this is none")));
    }
    let values = values(&found.values);
    Ok(Sample {
        value_type,
        metric,
        dims: found.dims,
        rows: found.rows,
        values,
        queries,
        own_type: false,
        column: None,
    })
}

/// Whether the argument looks like a connection string (`key=value …` or a URI), and no such file exists.
fn is_connection_string(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let like_one = text.contains('=') || text.starts_with("postgresql://") || text.starts_with("postgres://");
    like_one && !path.exists()
}
