use thiserror::Error;

use crate::{MAX_PINGS, SqlState, kind};

/// A violation of the protocol by the peer. The connection cannot be used after it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// The reserved field of a header is not 0.
    #[error("reserved header field is {0}, must be 0")]
    Reserved(u16),
    /// Flags that are unknown, or not allowed for this kind.
    #[error("{} frame has flags {flags:#04x}", kind::name(*.kind))]
    Flags {
        /// The frame's kind.
        kind: u8,
        /// Its flags.
        flags: u8,
    },
    /// A payload that exceeds the limit of its kind; detected before memory is allocated for it.
    #[error("{} frame of {length} bytes, {limit} allowed", kind::name(*.kind))]
    TooLong {
        /// The frame's kind.
        kind: u8,
        /// The payload's length in the header.
        length: u32,
        /// The limit of this kind.
        limit: usize,
    },
    /// Bytes were altered in transit.
    #[error("{} frame has checksum {found:#010x}, its bytes have {computed:#010x}", kind::name(*.kind))]
    Checksum {
        /// The frame's kind.
        kind: u8,
        /// The checksum in the header.
        found: u32,
        /// The checksum computed from the bytes.
        computed: u32,
    },
    /// A kind that this side does not accept, in a frame that is not marked optional.
    #[error("{} frame ({kind:#04x}) is not for this side", kind::name(*.kind))]
    UnknownKind {
        /// The frame's kind.
        kind: u8,
    },
    /// A payload that ends before all of its fields.
    #[error("{message} ends in field {field}: {needed} bytes needed, {left} left")]
    Truncated {
        /// The message.
        message: &'static str,
        /// The field that is truncated.
        field: &'static str,
        /// The field's length in bytes.
        needed: u64,
        /// The bytes left in the payload.
        left: usize,
    },
    /// Extra bytes after a message whose length is exact.
    #[error("{message} has {extra} bytes after its end")]
    Trailing {
        /// The message.
        message: &'static str,
        /// The number of extra bytes.
        extra: usize,
    },
    /// A text that is not UTF-8 or has a NUL.
    #[error("{message} has a {field} that is not text")]
    Text {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A number that is not a value type.
    #[error("value type {0} is not known")]
    ValueType(u8),
    /// A number that is not a metric.
    #[error("metric {0} is not known")]
    Metric(u8),
    /// Five bytes that are not an error code.
    #[error("{0:?} is not an error code")]
    SqlState([u8; 5]),
    /// An empty batch.
    #[error("{message} has count 0")]
    Empty {
        /// The message.
        message: &'static str,
    },
    /// Lengths that do not match the bytes of the values, or a value that is empty.
    #[error("{count} values of {expected} bytes in all, {found} bytes found")]
    Values {
        /// The number of values.
        count: u32,
        /// The sum of their lengths.
        expected: u64,
        /// The bytes received.
        found: u64,
    },
    /// Pages beyond the highest possible block number.
    #[error("{count} pages from block {first_block} on, block numbers end before")]
    Blocks {
        /// The block number of the first page.
        first_block: u32,
        /// The number of pages.
        count: u32,
    },
    /// More pings than a daemon answers.
    #[error("more than {MAX_PINGS} pings on a connection")]
    Pings,
    /// A message that is not allowed in this state.
    #[error("unexpected {message} while {state}")]
    Unexpected {
        /// The message.
        message: &'static str,
        /// The state of the session in words.
        state: &'static str,
    },
}

impl ProtocolError {
    /// The error code with which to report it.
    #[must_use]
    pub fn sqlstate(&self) -> SqlState {
        match self {
            Self::ValueType(_) | Self::Metric(_) => SqlState::FEATURE_NOT_SUPPORTED,
            Self::Checksum { .. } => SqlState::DATA_CORRUPTED,
            _ => SqlState::PROTOCOL_VIOLATION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ProtocolError;
    use crate::SqlState;

    #[test]
    fn a_wrong_checksum_is_corruption() {
        let states = [ProtocolError::Checksum { kind: 1, found: 1, computed: 2 }, ProtocolError::Reserved(1)]
            .map(|error| error.sqlstate());
        assert_eq!(states, [SqlState::DATA_CORRUPTED, SqlState::PROTOCOL_VIOLATION]);
    }
}
