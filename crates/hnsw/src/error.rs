//! Why does a build end without a graph?

use std::path::PathBuf;

use thiserror::Error;

/// Why a build ended without a graph.
#[derive(Debug, Error, PartialEq)]
pub enum BuildError {
    /// Cancelled through [`crate::Control::cancel`].
    #[error("build cancelled")]
    Cancelled,
    /// The type does not have the metric.
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
    /// A value's length does not match its type and dimensions, or a batch has too few bytes.
    #[error("row {row} has a value of {found} bytes, {expected} expected")]
    ValueLength {
        /// The row, counted from 0 over the whole build.
        row: u64,
        /// The value's length in bytes, or the bytes left in the batch.
        found: usize,
        /// The length in bytes that type and dimensions require.
        expected: usize,
    },
    /// A batch has more bytes than its rows' values.
    #[error("{0} bytes follow the last value of a batch of rows")]
    TrailingBytes(usize),
    /// A value that pgvector itself would reject, or that the batch has no length for.
    #[error("row {row} has a value that is {problem}")]
    Value {
        /// The row, counted from 0 over the whole build.
        row: u64,
        /// What is wrong: not a number, infinite, …
        problem: &'static str,
    },
    /// A heap TID that no row can have.
    #[error("row {row} has an invalid heap TID")]
    HeapTid {
        /// The row, counted from 0 over the whole build.
        row: u64,
    },
    /// More elements than element numbers.
    #[error("more than {0} elements")]
    TooManyElements(u64),
    /// Memory or threads could not be allocated.
    #[error("out of memory: {0}")]
    Memory(String),
    /// The spool directory's disk or quota is full.
    #[error("no space left in the spool directory {}", .0.display())]
    SpoolFull(PathBuf),
    /// The spool file cannot be created, written or mapped.
    #[error("cannot use the spool directory {}: {problem}", .dir.display())]
    Spool {
        /// The directory.
        dir: PathBuf,
        /// The system's error message.
        problem: String,
    },
    /// A defect of the engine.
    #[error("engine defect: {0}")]
    Internal(String),
}
