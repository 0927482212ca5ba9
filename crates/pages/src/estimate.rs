//! Estimates of index size, memory and network traffic, before a build.

mod memory;

pub use memory::sizes;

use pgvector::{ValueType, max_level};

use crate::PAGE_SIZE;
use crate::datum::datum_len;
use crate::format::{LINE_POINTER_LEN, PAGE_SPACE, element_len, neighbor_count, neighbor_len};

/// The number of elements whose layout is simulated; larger indexes are scaled from it.
const SAMPLE: u64 = 50_000;

/// Overhead of a batch of rows or pages on the wire, in bytes: frame header, counts, TLS and TCP.
const PER_BATCH: u64 = 60;
/// Bytes of a batch: a few hundred KiB in both directions.
const BATCH: u64 = 256 << 10;

/// The size of an index before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The type of the indexed column.
    pub value_type: ValueType,
    /// Dimensions of the column.
    pub dims: u32,
    /// Bytes of a value without pgvector's header; the mean where lengths vary.
    pub value_len: usize,
    /// Neighbors per element on layers above 0.
    pub m: u16,
    /// Rows to be indexed.
    pub rows: u64,
    /// Distinct elements: fewer than rows where values are equal.
    pub elements: u64,
}

impl Estimate {
    /// Threads assumed for an unknown builder; each needs a fixed amount of memory.
    pub const ASSUMED_THREADS: u32 = 16;

    /// Blocks of the index as a [`crate::Layout`] makes it. Exact except for levels, which are distributed evenly here and
    /// drawn at random for a real index.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        // The meta page, and at least one data page.
        self.data_pages().max(1).saturating_add(1)
    }

    /// The number of elements in an index of `blocks` blocks that are as full as a build makes them.
    #[must_use]
    pub fn elements_in(value_type: ValueType, value_len: usize, m: u16, blocks: u32) -> u64 {
        // Blocks depend on the length of values, not on dimensions.
        let sample = Self { value_type, dims: 0, value_len, m, rows: SAMPLE, elements: SAMPLE };
        u64::from(blocks) * SAMPLE / sample.blocks()
    }

    /// Bytes of the index.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.blocks().saturating_mul(PAGE_SIZE as u64)
    }

    /// Bytes sent between database and builder, in both directions: heap TIDs and values, and pages.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        let length = if self.value_type.value_len(1).is_none() { 4 } else { 0 };
        let rows = self.rows.saturating_mul(6 + length + self.value_len as u64);
        let both = rows.saturating_add(self.index_bytes());
        both.saturating_add(both.div_ceil(BATCH) * PER_BATCH)
    }

    fn data_pages(&self) -> u64 {
        let sample = self.elements.min(SAMPLE);
        let element = element_len(datum_len(self.value_type, self.value_len)) + LINE_POINTER_LEN;
        let per_page = (PAGE_SPACE / element).max(1) as u64;
        let (mut element_pages, mut neighbor_pages, mut free) = (0u64, 0u64, 0);
        let mut levels = Levels::new(self.m);
        let mut first = 0;
        while first < sample {
            let on_page = per_page.min(sample - first);
            let mut room = PAGE_SPACE.saturating_sub(on_page as usize * element);
            for _ in 0..on_page {
                let neighbors = neighbor_len(neighbor_count(levels.next(), self.m)) + LINE_POINTER_LEN;
                if neighbors <= room {
                    room -= neighbors;
                    continue;
                }
                if neighbors > free {
                    (neighbor_pages, free) = (neighbor_pages + 1, PAGE_SPACE);
                }
                free -= neighbors;
            }
            element_pages += 1;
            first += on_page;
        }
        let pages = element_pages + neighbor_pages;
        if self.elements <= SAMPLE {
            return pages;
        }
        u64::try_from((u128::from(pages) * u128::from(self.elements)).div_ceil(u128::from(sample))).unwrap_or(u64::MAX)
    }
}

/// Levels in pgvector's distribution, from evenly spread fractions (of the golden ratio) instead of random numbers.
struct Levels {
    fraction: f64,
    factor: f64,
    cap: u8,
}

impl Levels {
    fn new(m: u16) -> Self {
        let m = m.max(2);
        Self { fraction: 0.5, factor: 1.0 / f64::from(m).ln(), cap: max_level(m) }
    }

    fn next(&mut self) -> u8 {
        self.fraction = (self.fraction + 0.618_033_988_749_895).fract();
        let level = -(1.0 - self.fraction).ln() * self.factor;
        if level >= f64::from(self.cap) { self.cap } else { level as u8 }
    }
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::{Estimate, Levels};
    use crate::PAGE_SIZE;

    fn vectors(dims: u32, m: u16, elements: u64) -> Estimate {
        let value_len = 4 * dims as usize;
        Estimate { value_type: ValueType::Vector, dims, value_len, m, rows: elements, elements }
    }

    #[test]
    fn small_indexes_are_exact() {
        assert_eq!(vectors(3, 16, 0).blocks(), 2);
        assert_eq!(vectors(3, 16, 1).blocks(), 2);
        // As in the test of the writer: one page for each element with its neighbors.
        assert_eq!(vectors(1536, 16, 120).blocks(), 121);
        // An element page has room for one element only, and a neighbor tuple does not fit beside it.
        assert_eq!(vectors(2000, 50, 120).blocks(), 1 + 120 + 120 / 13 + 1);
    }

    #[test]
    fn large_indexes_grow_evenly() {
        let (small, large) = (vectors(384, 16, 40_000), vectors(384, 16, 40_000_000));
        let ratio = large.index_bytes() as f64 / small.index_bytes() as f64;
        assert!((999.0..1001.0).contains(&ratio), "{ratio}");
        assert!(large.wire_bytes() > 40_000_000 * (6 + 1536) + large.index_bytes());
        // No overflow at the extremes.
        let most = vectors(2000, 100, u64::MAX >> 20);
        assert!(most.wire_bytes() >= most.index_bytes() && most.blocks() >= most.elements);
        assert_eq!(vectors(64, 16, 1).index_bytes(), 2 * PAGE_SIZE as u64);
    }

    #[test]
    fn levels_are_those_of_hnsw() {
        let mut levels = Levels::new(16);
        let levels: Vec<u8> = (0..65_536).map(|_| levels.next()).collect();
        let on = |layer| levels.iter().filter(|&&level| level >= layer).count();
        assert!((4080..4112).contains(&on(1)) && (250..262).contains(&on(2)), "{} {}", on(1), on(2));
    }
}
