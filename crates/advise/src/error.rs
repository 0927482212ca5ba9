use hnsw::BuildError;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// Fewer rows than searches can be measured with.
    #[error("{rows} rows with values are too few for advice: at least {least} are needed")]
    TooFew {
        /// Rows that have a value with a direction, where the metric asks for one.
        rows: u64,
        /// Rows needed.
        least: u64,
    },
    /// All queries have no direction, which the metric asks for.
    #[error("none of the queries has a nearest neighbor: all are of norm zero")]
    NoQueries,
    /// No index of pgvector takes such values.
    #[error("no hnsw index takes {value_type}({dims}) by {metric}")]
    Unsupported {
        /// The type of the values.
        value_type: &'static str,
        /// Their dimensions.
        dims: u32,
        /// The metric.
        metric: &'static str,
    },
    /// A graph could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}
