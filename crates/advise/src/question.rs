use pgvector::{Metric, ValueType};

/// The largest number of queries.
pub const MAX_QUERIES: usize = 1000;

/// The column, its metric and the recall to reach.
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
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Question {
    /// Neighbors per query when graphs of different sizes are compared: fewer than ten would be too noisy.
    pub(crate) fn wide(&self) -> usize {
        self.k.max(10)
    }

    /// The number of queries: more at k below 10, where each has fewer neighbors to find.
    #[must_use]
    pub(crate) fn queries(&self) -> usize {
        if self.k < 10 { MAX_QUERIES } else { MAX_QUERIES / 2 }
    }
}
