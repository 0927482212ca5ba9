use pgvector::{Metric, ValueType};

/// The most queries that are searched for.
pub const MAX_QUERIES: usize = 1000;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// The type of the column.
    pub value_type: ValueType,
    /// The metric of the queries.
    pub metric: Metric,
    /// Dimensions of every value.
    pub dims: u32,
    /// Rows of the whole table that would be indexed.
    pub rows: u64,
    /// The recall wanted, above 0 and below 1.
    pub target: f64,
    /// Neighbors that a query asks for, from 1 to the largest `ef_search`.
    pub k: usize,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Question {
    /// Neighbors by which graphs of different sizes are compared: few of them tell little.
    pub(crate) fn wide(&self) -> usize {
        self.k.max(10)
    }

    /// Queries to search for: at k below 10 each tells less.
    #[must_use]
    pub(crate) fn queries(&self) -> usize {
        if self.k < 10 { MAX_QUERIES } else { MAX_QUERIES / 2 }
    }
}
