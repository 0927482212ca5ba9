//! The finished HNSW graph that a build ends in and that index pages are made from.
//!
//! It is read-only and checked on construction; nothing here builds, searches or serialises.

mod error;
mod finished;
mod heap_tid;
mod value;

pub use error::GraphError;
pub use finished::{Graph, GraphParts, NO_NEIGHBOR};
pub use heap_tid::{HEAP_TIDS_PER_ELEMENT, HeapTid, HeapTids};
pub use value::{ElementValues, ValueType};

/// The highest level an element may have so that its neighbor tuple fits on a page.
///
/// pgvector's `HnswGetMaxLevel`, with the cap of 63 that it has since 0.8.6.
#[must_use]
pub fn max_level(m: u16) -> u8 {
    // floor((page - header - special - line pointer - tuple header) / TID size)
    const SLOTS_PER_PAGE: u16 = (8192 - 24 - 8 - 4 - 4) / 6;
    let fitting = (SLOTS_PER_PAGE / m.max(1)).saturating_sub(2);
    u8::try_from(fitting.min(63)).unwrap_or(63)
}

#[cfg(test)]
mod tests {
    use super::max_level;

    #[test]
    fn level_caps_are_pgvectors() {
        assert_eq!(max_level(16), 63);
        assert_eq!(max_level(100), 11);
        assert_eq!(max_level(2), 63);
    }
}
