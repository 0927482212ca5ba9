use thiserror::Error;

/// Why a client cannot use a graph as a file of nodes.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NodeFileError {
    /// There are no nodes: clients would write an uninitialised entry point into the index.
    #[error("there are no rows to index")]
    Empty,
    /// There are more nodes than a client can allocate memory for.
    #[error("{0} rows, the client can take {max}", max = crate::file::MAX_NODES)]
    TooMany(u64),
    /// A node is so long that the client would read beyond its buffer.
    #[error("nodes of {0} bytes, which the client would misread")]
    TooLong(u64),
    /// A value equals the mark of an error message where the client checks for one.
    #[error("values that the client would take for an error")]
    Ambiguous,
    /// A defect of the engine: an element without exactly one heap TID, or an order that is not a permutation.
    #[error("element {0} has not exactly one place and one heap TID")]
    Element(u32),
}
