use thiserror::Error;

/// Why a graph cannot be given to a client as a file.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NodeFileError {
    /// Clients make an index of no nodes, but its entry point is whatever was in their memory.
    #[error("there are no rows to index")]
    Empty,
    /// More nodes than a client can take memory for.
    #[error("{0} rows, the client can take {max}", max = crate::file::MAX_NODES)]
    TooMany(u64),
    /// A node that the client would read beyond its buffer.
    #[error("nodes of {0} bytes, which the client would misread")]
    TooLong(u64),
    /// Bytes at a place where the client takes them for an error of ours.
    #[error("values that the client would take for an error")]
    Ambiguous,
    /// A defect of the engine: not one heap TID per element, or an order that is none.
    #[error("element {0} has not exactly one place and one heap TID")]
    Element(u32),
}
