use std::time::Duration;

use pgvector::{MAX_SPARSEVEC_NNZ, PAGE_SIZE};

use crate::kind;

/// The most bytes in the payload of any frame but Tuples, Pages and IndexPages.
pub const MAX_CONTROL_PAYLOAD: usize = 64 << 10;
/// The most bytes in the payload of a Tuples, Pages or IndexPages frame.
pub const MAX_DATA_PAYLOAD: usize = 2 << 20;
/// The most bytes of a text that this crate sends; longer ones are cut. The five of a Hello fit into its frame.
pub const MAX_TEXT_BYTES: usize = 8 << 10;

/// The most pages in one frame.
pub const MAX_PAGES_PER_FRAME: usize = (MAX_DATA_PAYLOAD - 8) / PAGE_SIZE;

/// The bytes of a heap TID.
pub const HEAP_TID_BYTES: usize = pgvector::TID_LEN;
/// The most bytes of one value: a sparsevec with [`MAX_SPARSEVEC_NNZ`] entries.
pub const MAX_VALUE_BYTES: usize = 4 + 8 * MAX_SPARSEVEC_NNZ;
/// The number of bytes from which a batch of rows is sent.
pub const TUPLES_BATCH_BYTES: usize = 256 << 10;

/// The most queries that a client may send with the sample that it asks advice on.
pub const MAX_ADVICE_QUERIES: u32 = 1000;

/// The most pings that a daemon answers on one connection: clients need no token for them.
pub const MAX_PINGS: u32 = 100;

/// A builder sends a frame at least this often from Hello on; a client should when it pauses between rows.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a client waits for a silent builder, by default.
pub const BUILDER_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a builder waits for a silent client that owes rows, by default. Much longer than the reverse: a scan may find no
/// row for minutes.
pub const CLIENT_SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// The most bytes in the payload of a frame of this kind; unknown kinds count as control frames.
#[must_use]
pub fn max_payload(frame_kind: u8) -> usize {
    match frame_kind {
        kind::TUPLES | kind::PAGES | kind::INDEX_PAGES => MAX_DATA_PAYLOAD,
        _ => MAX_CONTROL_PAYLOAD,
    }
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::{MAX_PAGES_PER_FRAME, MAX_VALUE_BYTES, TUPLES_BATCH_BYTES};

    #[test]
    fn the_largest_values_fit() {
        for value_type in [ValueType::Vector, ValueType::HalfVec, ValueType::Bit] {
            assert!(value_type.value_len(value_type.max_dims()).unwrap() <= MAX_VALUE_BYTES);
        }
        assert_eq!((MAX_PAGES_PER_FRAME, MAX_VALUE_BYTES, TUPLES_BATCH_BYTES), (255, 8004, 262_144));
    }
}
