//! Which tables and columns can have an hnsw index?

use std::ffi::CStr;

use pgrx::prelude::*;
use pgvector::ValueType;

use super::{gone, name};
use crate::column::type_name;
use crate::failure::Failure;

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
