use pgvector::ValueType;

use super::Estimate;
use crate::IncomingVerifier;

/// The program before it builds anything.
const PROGRAM_BYTES: u64 = 10 << 20;

/// A build's connection, and batches of rows and pages on their way.
const PER_BUILD: u64 = 6 << 20;

/// Values that a thread has packed as f32: those of a leaf.
const PACKED: u64 = 3 << 9;
/// Or as codes, both by dimensions and by vectors as AMX wants them: a leaf, and a cell with the candidates of its points.
const PACKED_CODES: u64 = 7 << 9;

/// Sparse values of a leaf, and bytes for each number of theirs in inverted lists: the number in its list and with its value, three times the
/// place of the list, and up to four times its place in a table of dimensions.
const INVERTED: u64 = 1000;
const INVERTED_NUMBER: u64 = 8 + 8 + 3 * 4 + 4 * 8;

/// For each element, while groups are made and when neighbors are chosen, its lists left out: numbers, levels, order and pivots.
const GROUPED: u64 = 140;
const CHOOSING: u64 = 75;
/// Of those, notes on codes, and pivots that only those have who are compared by products.
const BY_PRODUCTS: u64 = 32;
/// For each element, where its value stands, if rows came in another order than that of the table.
const PLACED: u64 = 4;

/// Bytes of a candidate: distance and element.
const CANDIDATE: u64 = 8;
/// Bytes of a neighbor in a list.
const LINK: u64 = 4;
/// For each element, where its reverse links begin and how many there are, while they are collected.
const REVERSE: u64 = 24;

/// Batches of rows and pages on their way between the backend and its thread, with what TLS keeps of them.
const PER_BACKEND: u64 = 4 << 20;

impl Estimate {
    /// The most memory in bytes that the backend of CREATE INDEX needs for the build, in its own process and outside the accounting of
    /// PostgreSQL: batches on their way, and what it knows of the pages while it verifies them.
    #[must_use]
    pub fn backend_memory_bytes(&self) -> u64 {
        IncomingVerifier::most_memory_bytes(self.elements, self.blocks()).saturating_add(PER_BACKEND)
    }

    /// The most memory in bytes that a builder needs for this build alone, the program included.
    #[must_use]
    pub fn builder_memory_bytes(&self, threads: u32) -> u64 {
        self.build_memory_bytes(threads).saturating_add(PROGRAM_BYTES)
    }

    /// The most memory in bytes that the build needs at a time: the sum of what is alive when the neighbors
    /// of layer 0 are chosen for the first time or, if that is more, when the graph is made navigable. The graph's memory is free again before the index is complete; pages are made a few
    /// at a time.
    /// The engines' own structures are the measure; a change of theirs is a change here.
    ///
    /// | for each | bytes |
    /// |---|---|
    /// | element | its value, and its codes: a byte for each dimension, less where values vary in few directions; 2 × m slots of 8; m slots of 4 for each upper layer it is on; candidates; about 80 for numbers, levels, order and pivots |
    /// | row | its heap TID and, until all have come, its element |
    /// | thread | the values of a leaf as f32, or, where there are codes, its codes and those of a cell; sparse values in inverted lists |
    #[must_use]
    pub fn build_memory_bytes(&self, threads: u32) -> u64 {
        self.spooled_memory_bytes(threads).saturating_add(self.values_bytes(threads))
    }

    /// [`Self::build_memory_bytes`] when the values are in a file.
    #[must_use]
    pub fn spooled_memory_bytes(&self, threads: u32) -> u64 {
        let m = u64::from(self.m);
        let rest = (2 * m * CANDIDATE + CHOOSING).max(GROUPED) - if self.codes() > 0 { 0 } else { BY_PRODUCTS };
        let upper = 4 * m / (m - 1).max(1);
        // Those of the upper layers are gone by then.
        let candidates = CANDIDATE * room(kept(2 * m));
        // Where searches lose their way: the lists so far, and new ones of the first and the second round with their reverse links.
        let navigating = 2 * m * (LINK + 3 * CANDIDATE) + REVERSE + CHOOSING;
        let element = PLACED + upper + (candidates + rest).max(navigating);
        // TIDs are sorted from one array into another.
        let row = 2 * 6 + 4;
        let all = self.elements.saturating_mul(element).saturating_add(self.rows.saturating_mul(row));
        let leaf = match self.value_type {
            ValueType::SparseVec => {
                self.elements.min(INVERTED).saturating_mul(self.value_len as u64 / 8).saturating_mul(INVERTED_NUMBER)
            }
            _ => PACKED * 4 * self.codes(),
        };
        all.saturating_add(PER_BUILD).saturating_add(u64::from(threads).saturating_mul(leaf))
    }

    /// Bytes of the values, each once, and of what is kept with them: an int8 code for each dimension. Processors that have no use
    /// for codes have leaves of f32 in their place, which are in [`Self::spooled_memory_bytes`] and larger than leaves of codes.
    #[must_use]
    pub fn values_bytes(&self, threads: u32) -> u64 {
        let larger = u64::from(threads) * (4 * PACKED - PACKED_CODES);
        let codes = self.elements.saturating_sub(larger).saturating_mul(self.codes());
        self.elements.saturating_mul(self.value_len as u64).saturating_add(codes)
    }

    /// Bytes of a value's codes.
    fn codes(&self) -> u64 {
        let codes = match self.value_type {
            ValueType::Vector => self.value_len / 4,
            ValueType::HalfVec => self.value_len / 2,
            ValueType::Bit | ValueType::SparseVec => 0,
        };
        codes as u64
    }
}

/// Candidates that are kept for a list of so many. Where codes are of few directions there are a few more, but codes are shorter by as
/// much and more.
fn kept(list: u64) -> u64 {
    (2 * list).max(64) - 8
}

/// Candidates come in beyond those that are kept, before they are sorted.
fn room(kept: u64) -> u64 {
    kept + kept / 4 + 2
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::PROGRAM_BYTES;
    use crate::Estimate;

    #[test]
    fn values_and_candidates_are_most_of_it() {
        let elements = 1_000_000;
        let wide = Estimate { value_type: ValueType::Vector, value_len: 6144, m: 16, rows: elements, elements };
        let bytes = wide.builder_memory_bytes(8);
        assert!((8_500_000_000..9_000_000_000).contains(&bytes), "{bytes}");
        let bits = Estimate { value_type: ValueType::Bit, value_len: 192, ..wide };
        assert!(bits.builder_memory_bytes(8) < 1_700_000_000, "{}", bits.builder_memory_bytes(8));
        assert_eq!(wide.builder_memory_bytes(8) - wide.build_memory_bytes(8), PROGRAM_BYTES);
        assert_eq!(wide.build_memory_bytes(8) - wide.spooled_memory_bytes(8), wide.values_bytes(8));
        let shared = Estimate { elements: elements / 10, ..wide };
        assert!(shared.builder_memory_bytes(8) < bytes / 6);
    }
}
