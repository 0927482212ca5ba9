use std::ops::RangeInclusive;

use crate::MAX_SLOTS;

/// The range of `m`.
pub const M_RANGE: RangeInclusive<u16> = 2..=100;

/// The `m` of an index without this option.
pub const DEFAULT_M: u16 = 16;

/// The range of `ef_construction`, which must also be at least [`min_ef_construction`].
pub const EF_CONSTRUCTION_RANGE: RangeInclusive<u16> = 4..=1000;

/// The `ef_construction` of an index without this option.
pub const DEFAULT_EF_CONSTRUCTION: u16 = 64;

/// The largest `hnsw.ef_search`: the most elements that a search keeps, and so the most rows that one index scan returns.
pub const MAX_EF_SEARCH: u16 = 1000;

/// The most dimensions of a `vector`, `halfvec` or `bit` column whose values an index can hold as another type.
pub const MAX_TABLE_DIMS: u32 = 16_000;

/// The most entries of a sparsevec that can be indexed.
pub const MAX_SPARSEVEC_NNZ: usize = 1000;

/// The most rows of an element.
pub const HEAP_TIDS_PER_ELEMENT: usize = 10;

/// The least `ef_construction` that pgvector accepts with `m`.
#[must_use]
pub fn min_ef_construction(m: u16) -> u16 {
    m.saturating_mul(2).max(*EF_CONSTRUCTION_RANGE.start())
}

/// The highest level at which an element's neighbor tuple fits on a page.
///
/// pgvector's `HnswGetMaxLevel`, with its cap of 63 since 0.8.6.
#[must_use]
pub fn max_level(m: u16) -> u8 {
    let fitting = (MAX_SLOTS / usize::from(m.max(1))).saturating_sub(2);
    u8::try_from(fitting.min(63)).unwrap_or(63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_caps_are_pgvectors() {
        assert_eq!(max_level(16), 63);
        assert_eq!(max_level(100), 11);
        assert_eq!(max_level(2), 63);
        // 1,358 slots fit on a page; with 1,360, each of these would be one level higher.
        assert_eq!([34, 40, 80].map(max_level), [37, 31, 14]);
    }

    #[test]
    fn ef_construction_is_at_least_twice_m() {
        assert_eq!([2, 16, 100, u16::MAX].map(min_ef_construction), [4, 32, 200, u16::MAX]);
    }
}
