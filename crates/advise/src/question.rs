use pgvector::{Metric, ValueType};

/// The largest number of queries that may be given.
pub const MAX_QUERIES: usize = 1000;
/// At k below this, each query has too few neighbors to find: more queries are needed, and recall is less certain.
const FEW: usize = 10;

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
    /// Whether the index must have values of the column's type, since pgvector has no others.
    pub own_type: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Question {
    /// Neighbors per query when graphs of different sizes are compared: fewer than ten would be too noisy.
    pub(crate) fn wide(&self) -> usize {
        self.k.max(FEW)
    }

    /// At most this many of the given queries are used.
    pub(crate) fn queries(&self) -> usize {
        if self.is_of_few() { MAX_QUERIES } else { MAX_QUERIES / 2 }
    }

    /// At most this many rows are held out as queries.
    pub(crate) fn held_out(&self) -> usize {
        if self.is_of_few() { 2 * MAX_QUERIES } else { MAX_QUERIES / 2 }
    }

    /// Whether a query asks for so few neighbors that growth and recall are measured with a large error.
    pub(crate) fn is_of_few(&self) -> bool {
        self.k < FEW
    }

    /// The recall that searches of the sample must reach: the target, and one standard error of the measurement more, since the queries may
    /// by chance have been easier than others.
    pub(crate) fn aim(&self, error: f64) -> f64 {
        // The aim stays below 1.
        self.target + error.min((1.0 - self.target) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use pgvector::{Metric, ValueType};

    use super::Question;

    #[test]
    fn the_aim_is_an_error_above_the_target() {
        let (value_type, metric) = (ValueType::Vector, Metric::L2);
        let question =
            Question { value_type, metric, dims: 8, rows: 1000, target: 0.9, k: 10, own_type: false, seed: 0 };
        assert!((question.aim(0.01) - 0.91).abs() < 1e-9);
        assert!((question.aim(0.2) - 0.95).abs() < 1e-9);
    }
}
