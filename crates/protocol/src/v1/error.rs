use thiserror::Error;

/// Why a request of a Lantern client cannot be served. The texts are short enough for [`super::error_frame`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum V1Error {
    /// Product quantization needs a code book, which no known client sends.
    #[error("product quantization is not supported")]
    ProductQuantization,
    /// A metric for which pgvector has no operator class of the type, or an unknown number.
    #[error("metric {metric} is not supported for quantization {quantization}")]
    Metric {
        /// usearch's number of the metric.
        metric: u32,
        /// usearch's number of the scalar kind.
        quantization: u32,
    },
    /// A scalar kind that pgvector does not have.
    #[error("quantization {0} is not supported")]
    Quantization(u32),
    /// A number of bits per dimension that is not that of the type.
    #[error("{found} bits per dimension, {expected} expected")]
    ElementBits {
        /// The number received.
        found: u32,
        /// The number of the type.
        expected: u32,
    },
    /// A number outside its limits.
    #[error("{what} is {value}, must be between {min} and {max}")]
    Range {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The least it may be.
        min: u32,
        /// The most it may be.
        max: u32,
    },
    /// A row label whose last two bytes are not 0: the stream is out of sync.
    #[error("row label {0:02x?} is not a heap TID")]
    Label([u8; 8]),
    /// An address that does not fit into the client's buffer, or that the client would misread.
    #[error("server address of {0} bytes cannot be sent")]
    Address(usize),
}
