//! `lantern_index.estimate(relation, column_name, m)`

use std::ffi::CStr;

use pages::Estimate;
use pgrx::prelude::*;
use pgrx::spi::{quote_identifier, quote_qualified_identifier};

use super::choices::{metric, require_class};
use super::statistics::Statistics;
use super::table::{IndexableColumn, check_kind, column_of, require_file};
use super::{bigint, name, read_one, require_select};
use crate::failure::{Failure, or_raise};
use crate::hook::owned;
use crate::scan;

#[pg_extern]
#[allow(clippy::type_complexity)] // the row, column by column
fn lantern_index_estimate(
    relation: pg_sys::Oid,
    column_name: &CStr,
    m: i32,
) -> TableIterator<
    'static,
    (
        name!(rows, i64),
        name!(index_bytes, i64),
        name!(builder_memory_bytes, i64),
        name!(wire_bytes, i64),
        name!(backend_memory_bytes, i64),
    ),
> {
    // SAFETY: called with an oid and a name, in a transaction.
    let estimate = or_raise(unsafe { estimate(relation, column_name, m) });
    TableIterator::once((
        bigint(estimate.rows),
        bigint(estimate.index_bytes()),
        bigint(estimate.builder_memory_bytes(Estimate::ASSUMED_THREADS)),
        bigint(estimate.wire_bytes()),
        bigint(estimate.backend_memory_bytes()),
    ))
}

unsafe fn estimate(relation: pg_sys::Oid, column_name: &CStr, m: i32) -> Result<Estimate, Failure> {
    let m = u16::try_from(m).ok().filter(|m| pgvector::M_RANGE.contains(m)).ok_or_else(|| {
        let (min, max) = (pgvector::M_RANGE.start(), pgvector::M_RANGE.end());
        Failure::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("m must be between {min} and {max}, not {m}"),
        )
    })?;
    // SAFETY: the table is locked while it is looked at; the lock stays until the end of the transaction.
    unsafe {
        check_kind(relation, "estimate")?;
        require_select(relation);
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let table = pg_sys::relation_open(relation, lock);
        require_file(table)?;
        let IndexableColumn { number, value_type, dims } = column_of(relation, column_name)?;
        require_class(&metric(value_type, None)?.operator_class(value_type))?;
        let most = value_type.max_dims();
        if dims > most {
            let message = format!("column cannot have more than {most} dimensions for hnsw index");
            return Err(Failure::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message));
        }
        // The planner assumes ten pages for an empty table that was never vacuumed.
        let all = if scan::blocks(table) == 0 { 0 } else { scan::estimate_rows(table, value_type.value_len(dims)) };
        pg_sys::relation_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        let statistics = Statistics::of(relation, number);
        let rows = statistics.rows(all);
        let value_len = value_type.value_len(dims).unwrap_or_else(|| mean_sparsevec_len(relation, column_name));
        Ok(Estimate { value_type, dims, value_len, m, rows, elements: statistics.elements(all, rows) })
    }
}

/// The mean encoded length of the first thousand values; the planner does not know the size of TOASTed values.
unsafe fn mean_sparsevec_len(relation: pg_sys::Oid, column_name: &CStr) -> usize {
    const ENTRY: f64 = 8.0;
    // SAFETY: reads catalogs.
    let table = unsafe {
        let schema = owned(pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation))).unwrap_or_default();
        quote_qualified_identifier(&schema, &name(relation))
    };
    let column = quote_identifier(column_name.to_string_lossy());
    // 12 bytes before the entries, after a header of 0, 1 or 4 bytes; 8 bytes per entry.
    let sql = format!(
        "SELECT pg_catalog.avg((pg_catalog.pg_column_size(v) OPERATOR(pg_catalog.-) 12) OPERATOR(pg_catalog./) 8)::pg_catalog.float8 \
         FROM (SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1000) t (v)"
    );
    let entries = read_one::<f64>(&sql).unwrap_or(0.0).clamp(0.0, pgvector::MAX_SPARSEVEC_NNZ as f64);
    4 + (entries * ENTRY) as usize
}
