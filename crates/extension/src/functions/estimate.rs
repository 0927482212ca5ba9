//! `lantern_index.estimate(relation, column_name, m)`

use std::ffi::CStr;

use pages::Estimate;
use pgrx::prelude::*;
use pgrx::spi::{quote_identifier, quote_qualified_identifier};
use pgvector::ValueType;

use super::choices::{metric, require_class};
use super::statistics::Statistics;
use super::{bigint, gone, name, read_one, require_select};
use crate::column::type_name;
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

/// Fails for an unlogged table of a standby, which has no file there.
///
/// # Safety
/// The table must be open.
pub(super) unsafe fn require_file(table: pg_sys::Relation) -> Result<(), Failure> {
    // SAFETY: as promised by the caller.
    match unsafe { super::has_no_file(table) } {
        true => Err(Failure::new(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, super::NO_FILE)),
        false => Ok(()),
    }
}

/// Fails unless the relation can have an index. `function` is the one that was called, for the hint.
///
/// # Safety
/// Must be called in a transaction.
pub(super) unsafe fn check_kind(relation: pg_sys::Oid, function: &str) -> Result<(), Failure> {
    // SAFETY: reads catalogs.
    let (kind, name) = unsafe { (pg_sys::get_rel_relkind(relation) as u8, name(relation)) };
    let wrong = |what| Err(Failure::new(PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE, format!("\"{name}\" is {what}")));
    match kind {
        0 => Err(gone(relation)),
        pg_sys::RELKIND_RELATION | pg_sys::RELKIND_MATVIEW => Ok(()),
        pg_sys::RELKIND_PARTITIONED_TABLE => wrong("a partitioned table").map_err(|failure: Failure| {
            failure.detail("Each of its partitions has an index of its own.").hint(format!(
                "Ask for them one by one, for instance with pg_partition_tree(…) CROSS JOIN LATERAL lantern_index.{function}(…) WHERE isleaf."
            ))
        }),
        _ => wrong("not a table or materialized view"),
    }
}

/// A column that can have an hnsw index.
pub(super) struct IndexableColumn {
    pub(super) number: pg_sys::AttrNumber,
    pub(super) value_type: ValueType,
    pub(super) dims: u32,
}

/// The column, with pgvector's checks and messages.
///
/// # Safety
/// The relation must be open.
pub(super) unsafe fn column_of(relation: pg_sys::Oid, column_name: &CStr) -> Result<IndexableColumn, Failure> {
    // SAFETY: the relation is open; the column exists from the first check on.
    unsafe {
        let column = pg_sys::get_attnum(relation, column_name.as_ptr());
        if column <= 0 {
            let (column, table) = (column_name.to_string_lossy(), name(relation));
            let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
            return Err(Failure::new(PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN, message));
        }
        let (mut type_oid, mut typmod, mut collation) = (pg_sys::Oid::INVALID, -1, pg_sys::Oid::INVALID);
        pg_sys::get_atttypetypmodcoll(relation, column, &raw mut type_oid, &raw mut typmod, &raw mut collation);
        let type_oid = pg_sys::getBaseTypeAndTypmod(type_oid, &raw mut typmod);
        let type_name = type_name(type_oid);
        let value_type = ValueType::named(&type_name).ok_or_else(|| {
            let code = PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED;
            let hint = "Columns of the types vector, halfvec, bit and sparsevec can have one.";
            Failure::new(code, format!("type {type_name} is not supported by hnsw indexes")).hint(hint)
        })?;
        let Some(dims) = u32::try_from(typmod).ok().filter(|&dims| dims > 0) else {
            let code = PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE;
            return Err(Failure::new(code, "column does not have dimensions"));
        };
        Ok(IndexableColumn { number: column, value_type, dims })
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
