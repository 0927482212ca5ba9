use hnsw::BuildError;
use pgvector::{Metric, ValueType};

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// Too few rows to measure searches with.
    #[error("{rows} rows with values are too few for advice: at least {least} are needed")]
    TooFew {
        /// Rows with a value, for cosine of a norm above zero.
        rows: u64,
        /// Rows needed.
        least: u64,
    },
    /// Too few queries to show the recall wanted.
    #[error("{queries} queries for {k} neighbors cannot show a recall of {target}: at least {least} are needed")]
    TooFewQueries {
        /// Queries given, or rows held out as queries.
        queries: usize,
        /// Neighbors that each asks for.
        k: usize,
        /// The recall wanted, 0 to 1.
        target: f64,
        /// Queries needed.
        least: usize,
    },
    /// All queries are of norm zero, which cosine cannot compare.
    #[error("none of the queries has a nearest neighbor: all are of norm zero")]
    NoQueries,
    /// pgvector has no hnsw index for the type, dimensions and metric.
    #[error("no hnsw index takes {}({dims}) by {}", .value_type.name(), .metric.name())]
    Unsupported {
        /// The type of the values.
        value_type: ValueType,
        /// Their dimensions.
        dims: u32,
        /// The metric.
        metric: Metric,
    },
    /// A graph could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}
