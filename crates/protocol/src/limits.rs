use std::ops::RangeInclusive;
use std::time::Duration;

use crate::{ValueType, kind};

/// The most bytes in the payload of any frame but Tuples, Pages and IndexPages.
pub const MAX_CONTROL_PAYLOAD: usize = 64 << 10;
/// The most bytes in the payload of a Tuples, Pages or IndexPages frame.
pub const MAX_DATA_PAYLOAD: usize = 2 << 20;
/// The most bytes of a text that this crate sends; longer ones are cut. Four of them fit into a control frame.
pub const MAX_TEXT_BYTES: usize = 8 << 10;

/// The bytes of a page of the index.
pub const PAGE_SIZE: usize = 8192;
/// The most pages that one frame holds.
pub const MAX_PAGES_PER_FRAME: usize = (MAX_DATA_PAYLOAD - 8) / PAGE_SIZE;

/// The bytes of a heap TID.
pub const HEAP_TID_BYTES: usize = 6;
/// The most bytes of one value: a sparsevec with [`MAX_SPARSEVEC_NNZ`] entries.
pub const MAX_VALUE_BYTES: usize = 4 + 8 * MAX_SPARSEVEC_NNZ;
/// The most entries of a sparsevec that pgvector indexes.
pub const MAX_SPARSEVEC_NNZ: usize = 1000;
/// From this many bytes on a batch of tuples is worth sending.
pub const TUPLES_BATCH_BYTES: usize = 256 << 10;

/// What `m` may be.
pub const M_RANGE: RangeInclusive<u16> = 2..=100;
/// What `ef_construction` may be, if it is at least [`min_ef_construction`].
pub const EF_CONSTRUCTION_RANGE: RangeInclusive<u16> = 4..=1000;

/// A builder sends a frame at least this often from Hello on, and a client in a pause between rows should.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a client waits for a silent builder, unless configured otherwise.
pub const BUILDER_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a builder waits for a silent client whose rows are due, unless configured otherwise. Much longer: a scan that
/// finds no row for minutes is no failure.
pub const CLIENT_SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// The most dimensions pgvector indexes of a type; the least is 1.
#[must_use]
pub fn max_dims(value_type: ValueType) -> u32 {
    match value_type {
        ValueType::Vector => 2_000,
        ValueType::HalfVec => 4_000,
        ValueType::Bit => 64_000,
        ValueType::SparseVec => 1_000_000_000,
    }
}

/// The least `ef_construction` that pgvector takes with `m`.
#[must_use]
pub fn min_ef_construction(m: u16) -> u16 {
    m.saturating_mul(2).max(*EF_CONSTRUCTION_RANGE.start())
}

/// The most bytes in the payload of a frame of this kind; kinds that are not known are taken as control frames.
#[must_use]
pub fn max_payload(frame_kind: u8) -> usize {
    match frame_kind {
        kind::TUPLES | kind::PAGES | kind::INDEX_PAGES => MAX_DATA_PAYLOAD,
        _ => MAX_CONTROL_PAYLOAD,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PAGES_PER_FRAME, MAX_VALUE_BYTES, max_dims, min_ef_construction};
    use crate::ValueType;

    #[test]
    fn the_largest_values_fit() {
        for value_type in [ValueType::Vector, ValueType::HalfVec, ValueType::Bit] {
            assert!(value_type.value_len(max_dims(value_type)).unwrap() <= MAX_VALUE_BYTES as u64);
        }
        assert_eq!(MAX_PAGES_PER_FRAME, 255);
    }

    #[test]
    fn ef_construction_is_at_least_twice_m() {
        assert_eq!([2, 16, 100, u16::MAX].map(min_ef_construction), [4, 32, 200, u16::MAX]);
    }
}
