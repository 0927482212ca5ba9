use thiserror::Error;

/// What a client of Lantern's protocol sent that cannot be served. The texts are short enough for [`super::error_frame`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum V1Error {
    /// Product quantization needs a code book, which the clients we know never send.
    #[error("product quantization is not supported")]
    ProductQuantization,
    /// A metric that no pgvector operator class of the type has, or a number that is none.
    #[error("metric {metric} is not supported for quantization {quantization}")]
    Metric {
        /// usearch's number of the metric.
        metric: u32,
        /// usearch's number of the scalar kind.
        quantization: u32,
    },
    /// A type of numbers that pgvector does not have.
    #[error("quantization {0} is not supported")]
    Quantization(u32),
    /// Bits per dimension that are not those of the type.
    #[error("{found} bits per dimension, {expected} expected")]
    ElementBits {
        /// As announced.
        found: u32,
        /// Those of the type.
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
    /// A row label whose last two bytes are not 0: the stream is out of step.
    #[error("row label {0:02x?} is not a heap TID")]
    Label([u8; 8]),
    /// An address that the client has no room for, or that it would misread.
    #[error("server address of {0} bytes cannot be sent")]
    Address(usize),
}
