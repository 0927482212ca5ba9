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

    /// The recall that this number of `queries` must reach in the sample: the target, or one standard error more if results of binary codes
    /// are reranked for few neighbors. There, the error of the measurement has been larger than the margin that the growth leaves.
    pub(crate) fn aim(&self, reranked: bool, queries: usize) -> f64 {
        if !reranked || !self.is_of_few() {
            return self.target;
        }
        let deviation = (self.target * (1.0 - self.target) / (queries.max(1) * self.k) as f64).sqrt();
        // The aim stays below 1.
        self.target + deviation.min((1.0 - self.target) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use pgvector::{Metric, ValueType};

    use super::Question;

    #[test]
    fn only_few_neighbors_of_codes_need_more_than_the_target() {
        let (value_type, metric) = (ValueType::Vector, Metric::L2);
        let question =
            |k, target| Question { value_type, metric, dims: 8, rows: 1000, target, k, own_type: false, seed: 0 };
        let aim = |k, target, reranked| question(k, target).aim(reranked, 900);
        assert!((aim(1, 0.9, true) - 0.91).abs() < 1e-9);
        assert!((aim(4, 0.9, true) - 0.905).abs() < 1e-9);
        assert!((question(1, 0.99).aim(true, 10) - 0.995).abs() < 1e-9);
        assert_eq!([aim(1, 0.9, false), aim(10, 0.9, true), aim(100, 0.9, true)], [0.9; 3]);
    }
}
