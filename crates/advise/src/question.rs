//! What is asked, and how many queries can answer it?

use pgvector::{Metric, ValueType};

/// The largest number of queries that may be given.
pub const MAX_QUERIES: usize = 1000;
/// At k below this, each query has too few neighbors to find: more queries are needed, and recall is less certain.
const FEW: usize = 10;
/// The misses that are assumed where searches show none.
pub(crate) const HALF_A_MISS: f64 = 0.5;

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
    /// Whether the index must have values of the column's type, since this pgvector (before 0.7) cannot index casts to others.
    pub own_type: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// At most this many of the given queries are used, for `k` neighbors.
#[must_use]
pub fn most_queries(k: usize) -> usize {
    if is_few(k) { MAX_QUERIES } else { MAX_QUERIES / 2 }
}

fn is_few(k: usize) -> bool {
    k < FEW
}

impl Question {
    /// Neighbors per query when graphs of different sizes are compared: fewer than ten would be too noisy.
    pub(crate) fn wide(&self) -> usize {
        self.k.max(FEW)
    }

    /// The fewest queries that can show the target. Searches without a miss count as half a miss, whose share must not exceed what the target
    /// allows.
    pub(crate) fn least_queries(&self) -> usize {
        // Without rounding errors of the target.
        (HALF_A_MISS / (self.k as f64 * (1.0 - self.target)) - 1e-6).ceil() as usize
    }

    /// At most this many rows are held out as queries.
    pub(crate) fn held_out(&self) -> usize {
        if self.is_of_few() { 2 * MAX_QUERIES } else { MAX_QUERIES / 2 }
    }

    /// Whether a query asks for so few neighbors that growth and recall are measured with a large error.
    pub(crate) fn is_of_few(&self) -> bool {
        is_few(self.k)
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

    fn question(k: usize, target: f64) -> Question {
        let (value_type, metric) = (ValueType::Vector, Metric::L2);
        Question { value_type, metric, dims: 8, rows: 1000, target, k, own_type: false, seed: 0 }
    }

    #[test]
    fn the_aim_is_an_error_above_the_target() {
        assert!((question(10, 0.9).aim(0.01) - 0.91).abs() < 1e-9);
        assert!((question(10, 0.9).aim(0.2) - 0.95).abs() < 1e-9);
    }

    #[test]
    fn a_high_recall_of_few_neighbors_needs_many_queries() {
        let least = |k, target| question(k, target).least_queries();
        assert_eq!([least(10, 0.9), least(10, 0.99), least(1, 0.99), least(1, 0.999)], [1, 5, 50, 500]);
        assert_eq!([least(10, 0.999), least(1000, 0.5)], [50, 1]);
    }
}
