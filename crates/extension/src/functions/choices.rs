//! Choices in SQL: the statement that creates an index, and a query that uses it.

use std::ffi::CStr;

use pgrx::prelude::*;
use pgrx::spi::{quote_identifier, quote_qualified_identifier};
use pgvector::{Metric, SCHEMA, SqlColumn, ValueType, has_class};
use protocol::Choice;

use super::table::IndexableColumn;
use super::{name, read_one};
use crate::failure::Failure;
use crate::hook::owned;

/// Table, column and operators, as SQL names them.
pub(super) struct Names {
    /// The table's own name.
    pub(super) relation: String,
    pub(super) column: SqlColumn,
}

/// A choice as SQL.
pub(super) struct ChoiceSql {
    pub(super) statement: String,
    pub(super) settings: String,
    pub(super) query: String,
}

impl Names {
    /// # Safety
    /// The relation and its column must exist.
    pub(super) unsafe fn new(
        relation: pg_sys::Oid,
        column_name: &CStr,
        found: &IndexableColumn,
        opclass: Option<&str>,
    ) -> Result<Self, Failure> {
        let metric = metric(found.value_type, opclass)?;
        let class = metric.operator_class(found.value_type);
        require_class(&class)?;
        let schema = read_one::<String>(SCHEMA).unwrap_or_default();
        // SAFETY: reads catalogs.
        unsafe {
            let schema_of = |oid| owned(pg_sys::get_namespace_name(oid)).unwrap_or_default();
            let own = name(relation);
            Ok(Self {
                column: SqlColumn {
                    table: quote_qualified_identifier(schema_of(pg_sys::get_rel_namespace(relation)), own.clone()),
                    name: quote_identifier(column_name.to_string_lossy()),
                    schema,
                    value_type: found.value_type,
                    dims: found.dims,
                    metric,
                },
                relation: own,
            })
        }
    }
}

/// The statement of a choice, its setting, and a query for the `k` nearest that uses the index.
pub(super) fn sql(names: &Names, choice: &Choice, k: u16) -> ChoiceSql {
    let Choice { value_type, m, ef_construction, ef_search, reranked, .. } = *choice;
    let options = format!("m = {m}, ef_construction = {ef_construction}, external = true");
    ChoiceSql {
        statement: names.column.index(value_type, &options),
        settings: format!("SET hnsw.ef_search = {ef_search}"),
        query: names.column.query(value_type, k, reranked),
    }
}

/// Fails if pgvector is older than the operator class.
pub(super) fn require_class(class: &str) -> Result<(), Failure> {
    if read_one(&has_class(class)) != Some(false) {
        return Ok(());
    }
    let message = format!("operator class \"{class}\" does not exist for access method \"hnsw\"");
    Err(Failure::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, message)
        .hint("Other types than vector, and other metrics than l2, ip and cosine, need pgvector 0.7 or later."))
}

/// The metric of an operator class, from the class's name or the metric's; by default cosine, or hamming for bits.
pub(super) fn metric(value_type: ValueType, opclass: Option<&str>) -> Result<Metric, Failure> {
    Metric::named(value_type, opclass).ok_or_else(|| {
        let (type_name, opclass) = (value_type.name(), opclass.unwrap_or_default());
        let message = format!("hnsw indexes of type {type_name} do not support operator class \"{opclass}\"");
        let fitting = Metric::ALL.into_iter().filter(|&metric| value_type.supports(metric));
        let names: Vec<String> = fitting.map(|metric| metric.operator_class(value_type)).collect();
        Failure::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, message)
            .hint(format!("Use one of {}.", names.join(", ")))
    })
}
