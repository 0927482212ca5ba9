//! Choices in SQL: the statement that creates an index, and a query that uses it.

use std::ffi::CStr;

use pgrx::prelude::*;
use pgrx::spi::{quote_identifier, quote_qualified_identifier};
use pgvector::{Metric, ValueType};
use protocol::Choice;

use super::estimate::Found;
use super::name;
use crate::failure::Failure;
use crate::hook::owned;

/// Table, column and operators, as SQL names them.
pub(super) struct Names {
    /// The table's own name.
    pub(super) relation: String,
    /// The same with its schema, quoted.
    table: String,
    /// Quoted.
    pub(super) column: String,
    /// The schema of pgvector's types with a dot, quoted; empty if the search path leads there.
    schema: String,
    pub(super) value_type: ValueType,
    pub(super) dims: u32,
    pub(super) metric: Metric,
}

/// A choice as SQL.
pub(super) struct Texts {
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
        found: &Found,
        opclass: Option<&str>,
    ) -> Result<Self, Failure> {
        let metric = metric(found.value_type, opclass)?;
        // SAFETY: reads catalogs.
        unsafe {
            let schema_of = |oid| owned(pg_sys::get_namespace_name(oid)).unwrap_or_default();
            let own = name(relation);
            let schema =
                found.schema.as_ref().map_or_else(String::new, |schema| format!("{}.", quote_identifier(schema)));
            Ok(Self {
                table: quote_qualified_identifier(schema_of(pg_sys::get_rel_namespace(relation)), own.clone()),
                relation: own,
                column: quote_identifier(column_name.to_string_lossy()),
                schema,
                value_type: found.value_type,
                dims: found.dims,
                metric,
            })
        }
    }

    /// Selects from a sample of blocks, `percent` of the table; from all of it at 100 and above.
    pub(super) fn sample(&self, percent: f64, most: u64) -> String {
        let Self { table, column, .. } = self;
        let sample = tablesample(percent);
        format!("SELECT {column} FROM ONLY {table}{sample} WHERE {column} IS NOT NULL LIMIT {most}")
    }

    /// Counts the rows with values in a sample of blocks.
    pub(super) fn count(&self, percent: f64) -> String {
        let Self { table, column, .. } = self;
        format!("SELECT pg_catalog.count({column}) FROM ONLY {table}{}", tablesample(percent))
    }

    /// Selects the values of the user's query, cast to the column's type.
    pub(super) fn queries(&self, queries: &str, most: u32) -> String {
        let queries = queries.trim_end().trim_end_matches(';');
        // The line break ends a comment in the user's query.
        format!(
            "SELECT v::{} FROM ({queries}\n) AS q (v) WHERE v IS NOT NULL LIMIT {most}",
            self.type_name(self.value_type)
        )
    }

    fn type_name(&self, value_type: ValueType) -> String {
        let schema = if value_type == ValueType::Bit { "" } else { &self.schema };
        format!("{schema}{}({})", value_type.name(), self.dims)
    }

    /// The expression that converts a value to the type of an index.
    fn as_type(&self, value: &str, value_type: ValueType) -> String {
        let (schema, dims) = (&self.schema, self.dims);
        match value_type {
            own if own == self.value_type => value.to_owned(),
            ValueType::Bit => format!("{schema}binary_quantize({value})::bit({dims})"),
            other => format!("{value}::{}", self.type_name(other)),
        }
    }

    fn operator(&self, metric: Metric) -> String {
        let operator = match metric {
            Metric::L2 => "<->",
            Metric::InnerProduct => "<#>",
            Metric::Cosine => "<=>",
            Metric::L1 => "<+>",
            Metric::Hamming => "<~>",
            Metric::Jaccard => "<%>",
        };
        match self.schema.strip_suffix('.') {
            Some(schema) => format!("OPERATOR({schema}.{operator})"),
            None => operator.into(),
        }
    }

    /// The metric of an index of a type: hamming if it has binary codes.
    fn metric_of(&self, value_type: ValueType) -> Metric {
        if value_type == ValueType::Bit && self.value_type != ValueType::Bit { Metric::Hamming } else { self.metric }
    }
}

fn tablesample(percent: f64) -> String {
    // With REPEATABLE, the same table gives the same advice.
    if percent < 100.0 { format!(" TABLESAMPLE pg_catalog.system ({percent}) REPEATABLE (0)") } else { String::new() }
}

/// The statement of a choice, its setting, and a query for the `k` nearest that uses the index.
pub(super) fn texts(names: &Names, choice: &Choice, k: u16) -> Texts {
    let Names { table, column, schema, .. } = names;
    let value_type = choice.value_type;
    let metric = names.metric_of(value_type);
    let key = names.as_type(column, value_type);
    let indexed = if key == *column { key.clone() } else { format!("({key})") };
    let class = format!("{schema}{}_{}_ops", value_type.name(), class(metric));
    let Choice { m, ef_construction, ef_search, reranked, .. } = choice;
    let value = format!("$1::{}", names.type_name(names.value_type));
    let (operator, searched) = (names.operator(metric), names.as_type(&value, value_type));
    let query = match reranked {
        0 => format!("SELECT * FROM {table} ORDER BY {key} {operator} {searched} LIMIT {k}"),
        candidates => format!(
            "SELECT * FROM (SELECT * FROM {table} ORDER BY {key} {operator} {searched} LIMIT {candidates}) AS candidates \
             ORDER BY {column} {} {value} LIMIT {k}",
            names.operator(names.metric)
        ),
    };
    Texts {
        statement: format!(
            "CREATE INDEX ON {table} USING hnsw ({indexed} {class}) \
             WITH (m = {m}, ef_construction = {ef_construction}, external = true)"
        ),
        settings: format!("SET hnsw.ef_search = {ef_search}"),
        query,
    }
}

/// The metric's part of the name of an operator class.
fn class(metric: Metric) -> &'static str {
    match metric {
        Metric::L2 => "l2",
        Metric::InnerProduct => "ip",
        Metric::Cosine => "cosine",
        Metric::L1 => "l1",
        Metric::Hamming => "hamming",
        Metric::Jaccard => "jaccard",
    }
}

/// The metric of an operator class, from the class's name or the metric's; by default cosine, or hamming for bits.
fn metric(value_type: ValueType, opclass: Option<&str>) -> Result<Metric, Failure> {
    let mut fitting = Metric::ALL.into_iter().filter(|&metric| value_type.supports(metric));
    let type_name = value_type.name();
    let found = match opclass {
        None if value_type == ValueType::Bit => Some(Metric::Hamming),
        None => Some(Metric::Cosine),
        Some(opclass) => fitting.clone().find(|&metric| {
            let class = class(metric);
            opclass == class || opclass == metric.name() || opclass == format!("{type_name}_{class}_ops")
        }),
    };
    found.ok_or_else(|| {
        let message =
            format!("operator class \"{}\" is none for hnsw indexes of type {type_name}", opclass.unwrap_or_default());
        let names: Vec<String> = fitting.by_ref().map(|metric| format!("{type_name}_{}_ops", class(metric))).collect();
        Failure::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, message)
            .hint(format!("Use one of {}.", names.join(", ")))
    })
}
