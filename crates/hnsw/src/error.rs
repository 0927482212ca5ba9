use std::path::PathBuf;

use thiserror::Error;

/// Why a build ended without a graph.
#[derive(Debug, Error, PartialEq)]
pub enum BuildError {
    /// Asked to stop through [`crate::Control::cancel`].
    #[error("build cancelled")]
    Cancelled,
    /// The engine has no metric for the type.
    #[error("{value_type} with {metric} is not supported by the {engine} engine")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The SQL name of the type.
        value_type: &'static str,
        /// The name of the metric.
        metric: &'static str,
    },
    /// Parameters outside their limits.
    #[error("{what} is {value}, must be between {min} and {max}")]
    Parameter {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// A batch whose parts do not fit together.
    #[error("row {row} has a value of {found} bytes, {expected} expected")]
    ValueLength {
        /// The row, counted from 0 over the whole build.
        row: u64,
        /// The bytes it has or the batch leaves for it.
        found: usize,
        /// The bytes that the type and dimensions ask for.
        expected: usize,
    },
    /// A value pgvector itself would not store.
    #[error("row {row} has a value that is {problem}")]
    Value {
        /// The row, counted from 0 over the whole build.
        row: u64,
        /// NaN, infinite, …
        problem: &'static str,
    },
    /// More elements than an element number can count.
    #[error("more than {0} elements")]
    TooManyElements(u64),
    /// No memory for the build.
    #[error("out of memory: {0}")]
    Memory(String),
    /// No room for values in the spool.
    #[error("no space left in the spool directory {}", .0.display())]
    SpoolFull(PathBuf),
    /// The spool does not work.
    #[error("cannot use the spool directory {}: {problem}", .dir.display())]
    Spool {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// A defect of the engine.
    #[error("engine defect: {0}")]
    Internal(String),
}
