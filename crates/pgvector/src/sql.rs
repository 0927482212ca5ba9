use std::ops::RangeInclusive;

use crate::{Metric, ValueType};

/// The query for [`SqlColumn::schema`]: one value, or no row without pgvector. All names and operators are qualified with
/// `pg_catalog`, so that no search path makes another user's function run with the caller's rights. It looks for an operator
/// class, not for a type, as the type `bit` is PostgreSQL's own.
pub const SCHEMA: &str = "\
    SELECT CASE WHEN pg_catalog.pg_opclass_is_visible(o.oid) THEN '' ELSE pg_catalog.format('%I.', n.nspname) END \
    FROM pg_catalog.pg_opclass o \
    JOIN pg_catalog.pg_am h ON h.oid OPERATOR(pg_catalog.=) o.opcmethod \
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) o.opcnamespace \
    WHERE h.amname OPERATOR(pg_catalog.=) 'hnsw' ORDER BY o.oid LIMIT 1";

/// The query for whether an index may have values of another type than its column: pgvector has `halfvec` and binary quantisation since
/// 0.7.
#[must_use]
pub fn has_other_types() -> String {
    has_class("halfvec_l2_ops")
}

/// The query for whether an operator class of this name exists: Manhattan distance and classes of bits, for instance, came with 0.7.
#[must_use]
pub fn has_class(name: &str) -> String {
    format!(
        "SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) 0 FROM pg_catalog.pg_opclass o \
         JOIN pg_catalog.pg_am h ON h.oid OPERATOR(pg_catalog.=) o.opcmethod \
         WHERE h.amname OPERATOR(pg_catalog.=) 'hnsw' AND o.opcname OPERATOR(pg_catalog.=) '{name}'"
    )
}

/// The query for whether row-level security hides rows of a table from the current role, by the table's oid.
#[must_use]
pub fn hides_rows(table: u32) -> String {
    format!("SELECT pg_catalog.row_security_active({table}::pg_catalog.oid)")
}

/// The notice to a user for whom [`hides_rows`] is true.
pub const HIDDEN_ROWS: &str =
    "row-level security hides rows of the table from this role: the advice is about the rows that it sees";

/// The name given to the first column of a user's query. None of its other columns should have it.
const QUERY: &str = "lantern_query";

/// The range of the rows that a user may ask to sample for advice.
pub const SAMPLE_ROWS: RangeInclusive<u64> = 1000..=10_000_000;

/// The rows to sample for advice about `k` neighbors if the user asks for `wanted`: at least three times what advice
/// needs, since a sample of blocks has the expected number of rows only on average, and not many more than the table's
/// estimated `rows`. It is also the limit of the query, as a lower one would leave out the last blocks of the table.
#[must_use]
pub fn sample_size(wanted: u64, k: u16, rows: u64) -> u64 {
    let least = (60 * u64::from(k)).max(3000);
    wanted.max(least).min(rows.saturating_add(rows / 2).saturating_add(1000))
}

/// The rows of a table after `read` rows of it were read, with a limit of `most`: if it was `estimated` to have no more
/// than `most`, and fewer than `most` came, it was read completely, and `read` is exact.
#[must_use]
pub fn rows_found(most: u64, estimated: u64, read: u64) -> u64 {
    if estimated <= most && read < most { read } else { estimated.max(read) }
}

/// A column of vectors in SQL. Its names are quoted where necessary.
#[derive(Clone, Debug)]
pub struct SqlColumn {
    /// The table with its schema.
    pub table: String,
    /// The column.
    pub name: String,
    /// The schema of pgvector's types and operators, quoted and with a dot; empty if it is in the search path.
    pub schema: String,
    /// The type of the column.
    pub value_type: ValueType,
    /// Its dimensions.
    pub dims: u32,
    /// The metric by which queries order rows.
    pub metric: Metric,
}

impl SqlColumn {
    /// The statement that creates an index with values of `value_type`.
    #[must_use]
    pub fn index(&self, value_type: ValueType, options: &str) -> String {
        let Self { table, name, schema, .. } = self;
        let key = self.converted(name, value_type);
        let indexed = if key == *name { key } else { format!("({key})") };
        let class = self.metric_of(value_type).operator_class(value_type);
        format!("CREATE INDEX ON {table} USING hnsw ({indexed} {schema}{class}) WITH ({options})")
    }

    /// The query for the `k` rows nearest to `$1` that uses such an index. `reranked` is the number of candidates from the
    /// index that are ordered again by their full values; 0 for none.
    #[must_use]
    pub fn query(&self, value_type: ValueType, k: u16, reranked: u16) -> String {
        let Self { table, name, .. } = self;
        let value = format!("$1::{}", self.type_name(self.value_type));
        let (key, searched) = (self.converted(name, value_type), self.converted(&value, value_type));
        let operator = self.operator(self.metric_of(value_type));
        match reranked {
            0 => format!("SELECT * FROM {table} ORDER BY {key} {operator} {searched} LIMIT {k}"),
            candidates => format!(
                "SELECT * FROM (SELECT * FROM {table} ORDER BY {key} {operator} {searched} LIMIT {candidates}) AS candidates \
                 ORDER BY {name} {} {value} LIMIT {k}",
                self.operator(self.metric)
            ),
        }
    }

    /// Selects at most `most` values, of a table of about `rows` values: from a sample of blocks, or from the whole table if it has no
    /// more.
    #[must_use]
    pub fn sample(&self, most: u64, rows: u64) -> String {
        let Self { table, name, .. } = self;
        let sample = tablesample(100.0 * most as f64 / rows.max(1) as f64);
        format!("SELECT {name} FROM ONLY {table}{sample} WHERE {name} IS NOT NULL LIMIT {most}")
    }

    /// Counts the rows with values in a few of a table's `blocks`, for [`Self::rows`].
    #[must_use]
    pub fn count(&self, blocks: f64) -> String {
        let Self { table, name, .. } = self;
        format!("SELECT pg_catalog.count({name}) FROM ONLY {table}{}", tablesample(100.0 * pilot_share(blocks)))
    }

    /// Estimates the number of rows with values, from those `counted` in a few of a table's `blocks` (off by about 7 %)
    /// or from statistics (maybe older than the values). Statistics are used if they differ from the count by at most a
    /// quarter, or if nothing was counted, as all values may lie in other blocks. A count of all blocks is exact.
    #[must_use]
    pub fn rows(blocks: f64, counted: i64, by_statistics: Option<f64>) -> u64 {
        const APART: f64 = 0.25;
        let share = pilot_share(blocks);
        let by_count = counted as f64 / share;
        let fits = |rows: &f64| share < 1.0 && (counted == 0 || (rows - by_count).abs() <= APART * by_count);
        by_statistics.filter(fits).unwrap_or(by_count).round() as u64
    }

    /// Selects the values of a user's query, cast to the column's type.
    #[must_use]
    pub fn queries(&self, queries: &str, most: u32) -> String {
        let queries = queries.trim_end().trim_end_matches(';');
        let value = match self.value_type {
            // An explicit cast to `bit(n)` would cut or pad values of another length. This is the cast of an assignment, which
            // fails.
            ValueType::Bit => format!("pg_catalog.\"bit\"({QUERY}::pg_catalog.varbit, {}, false)", self.dims),
            other => format!("{QUERY}::{}", self.type_name(other)),
        };
        // The line break ends a comment in the user's query.
        format!("SELECT {value} FROM ({queries}\n) AS q ({QUERY}) WHERE {QUERY} IS NOT NULL LIMIT {most}")
    }

    fn type_name(&self, value_type: ValueType) -> String {
        let schema = if value_type == ValueType::Bit { "" } else { &self.schema };
        format!("{schema}{}({})", value_type.name(), self.dims)
    }

    /// The expression that converts a value to the type of an index.
    fn converted(&self, value: &str, to: ValueType) -> String {
        let (schema, dims) = (&self.schema, self.dims);
        match to {
            own if own == self.value_type => value.to_owned(),
            ValueType::Bit => format!("{schema}binary_quantize({value})::bit({dims})"),
            other => format!("{value}::{}", self.type_name(other)),
        }
    }

    fn operator(&self, metric: Metric) -> String {
        match self.schema.strip_suffix('.') {
            Some(schema) => format!("OPERATOR({schema}.{})", metric.operator()),
            None => metric.operator().to_owned(),
        }
    }

    /// The metric of an index of a type: hamming for binary quantised values.
    fn metric_of(&self, value_type: ValueType) -> Metric {
        if value_type == ValueType::Bit && self.value_type != ValueType::Bit { Metric::Hamming } else { self.metric }
    }
}

/// The share of blocks in which rows are counted.
fn pilot_share(blocks: f64) -> f64 {
    const BLOCKS: f64 = 200.0;
    (BLOCKS / blocks.max(1.0)).min(1.0)
}

fn tablesample(percent: f64) -> String {
    // With REPEATABLE, the same table gives the same advice.
    if percent < 100.0 { format!(" TABLESAMPLE pg_catalog.system ({percent}) REPEATABLE (0)") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::SqlColumn;
    use crate::{Metric, ValueType};

    #[test]
    fn statistics_that_are_too_old_are_not_used() {
        let rows = |counted, by_statistics| SqlColumn::rows(2000.0, counted, by_statistics);
        assert_eq!([rows(900, Some(10_000.0)), rows(900, Some(0.0)), rows(900, None)], [10_000, 9000, 9000]);
        assert_eq!([rows(0, Some(500.0)), rows(0, Some(0.0)), rows(0, None)], [500, 0, 0]);
        let small = |counted| SqlColumn::rows(200.0, counted, Some(778.0));
        assert_eq!([small(777), small(0)], [777, 0], "all blocks are counted");
    }

    #[test]
    fn statements_convert_values_and_qualify_names() {
        let mut column = SqlColumn {
            table: "public.items".to_owned(),
            name: "v".to_owned(),
            schema: String::new(),
            value_type: ValueType::Vector,
            dims: 8,
            metric: Metric::Cosine,
        };
        assert_eq!(
            column.index(ValueType::Vector, "m = 8"),
            "CREATE INDEX ON public.items USING hnsw (v vector_cosine_ops) WITH (m = 8)"
        );
        assert_eq!(
            column.query(ValueType::HalfVec, 5, 0),
            "SELECT * FROM public.items ORDER BY v::halfvec(8) <=> $1::vector(8)::halfvec(8) LIMIT 5"
        );
        column.schema = "ext.".to_owned();
        assert_eq!(
            column.index(ValueType::Bit, "m = 8"),
            "CREATE INDEX ON public.items USING hnsw ((ext.binary_quantize(v)::bit(8)) ext.bit_hamming_ops) WITH (m = 8)"
        );
        assert_eq!(
            column.query(ValueType::Bit, 5, 20),
            "SELECT * FROM (SELECT * FROM public.items ORDER BY ext.binary_quantize(v)::bit(8) OPERATOR(ext.<~>) \
             ext.binary_quantize($1::ext.vector(8))::bit(8) LIMIT 20) AS candidates \
             ORDER BY v OPERATOR(ext.<=>) $1::ext.vector(8) LIMIT 5"
        );
        column.value_type = ValueType::Bit;
        assert_eq!(
            column.queries("SELECT b FROM q;", 9),
            "SELECT pg_catalog.\"bit\"(lantern_query::pg_catalog.varbit, 8, false) FROM (SELECT b FROM q\n) AS q (lantern_query) \
             WHERE lantern_query IS NOT NULL LIMIT 9"
        );
    }
}
