use pgvector::ValueType;

use super::Estimate;
use crate::IncomingVerifier;
use sizes::{
    CANDIDATE, CELL, FILLED, FULL, INVERTED, LINK, PACKED, PACKED_BITS, PACKED_CODE, PACKED_CODES, REVERSE,
    in_late_trial, in_trial, kept, room,
};

/// The sizes of the engine's structures in this formula. Tests of `hnsw` compare each with the structure.
pub mod sizes {
    /// Points of a leaf that is compared by tiles of f32.
    pub const PACKED: u64 = 3 << 9;
    /// Vectors packed per thread as codes: a leaf, and a cell with the candidates of its points.
    pub const PACKED_CODES: u64 = 7 << 9;
    /// Bytes of a packed code, at most: AVX2 needs it widened, and AMX in two layouts.
    pub const PACKED_CODE: u64 = 2;
    /// Bit strings packed per thread: a leaf, the candidates of an element, and elements that are compared with the guard's probes.
    pub const PACKED_BITS: u64 = 5 << 9;
    /// Points of a leaf of sparse values.
    pub const INVERTED: u64 = 1000;

    /// Sparse values get codes, as dense vectors do, if on average at least one of this many dimensions has an entry.
    pub const FILLED: u64 = 8;

    /// Points of a cell during refinement, each with a list.
    pub const CELL: u64 = 256;
    /// Candidates in such a list, at most, as a multiple of those that are kept.
    pub const FULL: u64 = 4;

    /// Bytes of a candidate: distance and element.
    pub const CANDIDATE: u64 = 8;
    /// Bytes of a neighbor in a list.
    pub const LINK: u64 = 4;
    /// For each element, where its reverse links begin and how many there are, while they are collected.
    pub const REVERSE: u64 = 24;

    /// Candidates kept for a list of `list` slots, at most. With codes of principal components a few more are kept, but these codes are
    /// shorter by more than that.
    #[must_use]
    pub const fn kept(list: u64) -> u64 {
        (if 2 * list > 64 { 2 * list } else { 64 }) - 8
    }

    /// Elements in a trial, the sample and its queries, of a build of `elements`. Their values are copied twice.
    #[must_use]
    pub fn in_trial(elements: u64) -> u64 {
        ((elements / 16).clamp(2000, 8000) + 800).min(elements / 4)
    }

    /// [`in_trial`] for a trial by which the guard decides whether to build a finished graph again.
    #[must_use]
    pub fn in_late_trial(elements: u64) -> u64 {
        in_trial(elements).min(2800)
    }

    /// The capacity for candidates of which `kept` are kept: more come in before the nearest are selected.
    #[must_use]
    pub const fn room(kept: u64) -> u64 {
        kept + kept / 4 + 2
    }
}

/// The program apart from its builds: 2 MiB of data, and the code that a build has executed, 10 to 12 MiB of a mapped file.
const PROGRAM_BYTES: u64 = 14 << 20;

/// A build's connection, and pages in transit. Rows in transit do not add to the peak, which comes after the last row: until then they may
/// use what is reserved for lists, candidates and threads.
const PER_BUILD: u64 = 6 << 20;

/// Bytes per thread for what does not grow with values or lists: indices and heaps of a leaf, and distances of the diversity rule.
const PER_THREAD: u64 = 1 << 20;

/// Bytes of a leaf's inverted lists for each entry of a sparse value: the entry in its list and in its value, three offsets of its list,
/// and up to four slots of a hash table of dimensions.
const INVERTED_NUMBER: u64 = 8 + 8 + 3 * 4 + 4 * 8;

/// Bytes per element besides its lists, during partition, and while neighbors are chosen: numbers, levels, order and pivots.
const GROUPED: u64 = 270;
const CHOOSING: u64 = 75;
/// The part of both that sparse values in inverted lists do not need: notes on codes, and pivots that are compared by tiles.
const BY_PRODUCTS: u64 = 32;
/// Bytes per element for the position of its value, needed if rows did not come in the order of the table.
const PLACED: u64 = 4;

/// Bytes per element for its number and its position in the order of elements.
const ORDERED: u64 = 8;

/// Batches of rows and pages in transit between the backend and its thread, and their copies in TLS buffers.
const PER_BACKEND: u64 = 4 << 20;

impl Estimate {
    /// The most memory in bytes that the backend of CREATE INDEX needs for the build, in its own process and outside
    /// PostgreSQL's memory contexts: batches in transit, and the state of page verification.
    #[must_use]
    pub fn backend_memory_bytes(&self) -> u64 {
        IncomingVerifier::most_memory_bytes(self.elements, self.blocks()).saturating_add(PER_BACKEND)
    }

    /// The most memory in bytes that a builder needs for this build alone, including the program.
    #[must_use]
    pub fn builder_memory_bytes(&self, threads: u32) -> u64 {
        self.build_memory_bytes(threads).saturating_add(PROGRAM_BYTES)
    }

    /// The peak memory of the build in bytes: when neighbors at layer 0 are selected for the first time or, if that is
    /// more, during navigation. The graph is freed before the index is complete; pages are made a few at a time.
    ///
    /// The constants and [`sizes`] mirror the structures of the engines, and change with them.
    ///
    /// | for each | bytes |
    /// |---|---|
    /// | element | its value and, except for bits and values with few entries, its codes: a byte per dimension, or per principal component |
    /// | | 2 × m slots of 8, and m slots of 4 for each upper layer that it is on |
    /// | | candidates, and about 80 for numbers, levels, order and pivots |
    /// | row | its heap TID and, until all have come, its element |
    /// | thread | the values of a leaf as f32, or two bytes per dimension of a leaf and of a cell; bits of a leaf and of other elements; sparse values in inverted lists; lists of a cell |
    ///
    /// Where a trial chooses the engine, its sample may need more than the elements' lists and candidates.
    #[must_use]
    pub fn build_memory_bytes(&self, threads: u32) -> u64 {
        self.spooled_memory_bytes(threads).saturating_add(self.values_bytes())
    }

    /// [`Self::build_memory_bytes`] with the values in a spool file.
    #[must_use]
    pub fn spooled_memory_bytes(&self, threads: u32) -> u64 {
        let m = u64::from(self.m);
        let rest = (2 * m * CANDIDATE + CHOOSING).max(GROUPED) - if self.is_inverted() { BY_PRODUCTS } else { 0 };
        let upper = 4 * m / (m - 1).max(1);
        // Candidates of layer 0 only: those of upper layers are freed by then.
        let candidates = CANDIDATE * room(kept(2 * m));
        // During navigation: the lists so far, and the candidates of both rounds of selection with their reverse links.
        let navigating = 2 * m * (LINK + 3 * CANDIDATE) + REVERSE + CHOOSING;
        let element = PLACED + upper + (candidates + rest).max(navigating);
        // TIDs are sorted from one array into another; until then each row also has the number of its element.
        let row = 2 * 6 + 4;
        // A trial has ended before the candidates of the build are found.
        let of_trial = element + 2 * self.value_len as u64 + self.codes();
        let trial = in_trial(self.elements).saturating_mul(of_trial);
        // A late one has the graph's lists beside it, and the elements' order.
        let lists = PLACED + upper + 2 * m * LINK + ORDERED;
        let late =
            in_late_trial(self.elements).saturating_mul(of_trial).saturating_add(self.elements.saturating_mul(lists));
        let all = self.elements.saturating_mul(element).max(trial).max(late);
        let all = all.saturating_add(self.rows.saturating_mul(row));
        let packed = (PACKED * 4).max(PACKED_CODES * PACKED_CODE) * self.codes();
        let leaf = match self.value_type {
            ValueType::SparseVec => {
                let inverted = self.elements.min(INVERTED).saturating_mul(self.entries());
                inverted.saturating_mul(INVERTED_NUMBER).max(packed)
            }
            ValueType::Bit => self.elements.min(PACKED_BITS).saturating_mul(self.value_len as u64),
            ValueType::Vector | ValueType::HalfVec => packed,
        };
        // The lists of a cell, and a bit for each element: whether it is among the cell's candidates.
        let thread = leaf + CELL * FULL * kept(2 * m) * CANDIDATE + self.elements / 8 + PER_THREAD;
        all.saturating_add(PER_BUILD).saturating_add(u64::from(threads).saturating_mul(thread))
    }

    /// Bytes of the distinct values and of their int8 codes, one per dimension.
    #[must_use]
    pub fn values_bytes(&self) -> u64 {
        self.elements.saturating_mul((self.value_len as u64).saturating_add(self.codes()))
    }

    /// Bytes of a value's codes.
    fn codes(&self) -> u64 {
        match self.value_type {
            ValueType::Vector | ValueType::HalfVec => self.dims.into(),
            // The build decides by a sample, which may have a few more entries.
            ValueType::SparseVec if self.value_len as u64 * (FILLED + 1) >= 8 * u64::from(self.dims) => {
                self.dims.into()
            }
            ValueType::Bit | ValueType::SparseVec => 0,
        }
    }

    /// Whether values are sparse and compared by inverted lists.
    fn is_inverted(&self) -> bool {
        self.value_type == ValueType::SparseVec && self.codes() == 0
    }

    /// Entries of a sparse value.
    fn entries(&self) -> u64 {
        self.value_len as u64 / 8
    }
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::PROGRAM_BYTES;
    use crate::Estimate;

    #[test]
    fn values_and_candidates_are_most_of_it() {
        let elements = 1_000_000;
        let wide =
            Estimate { value_type: ValueType::Vector, dims: 1536, value_len: 6144, m: 16, rows: elements, elements };
        let bytes = wide.builder_memory_bytes(8);
        assert!((8_500_000_000..9_000_000_000).contains(&bytes), "{bytes}");
        let bits = Estimate { value_type: ValueType::Bit, value_len: 192, ..wide };
        assert!(bits.builder_memory_bytes(8) < 1_700_000_000, "{}", bits.builder_memory_bytes(8));
        assert_eq!(wide.builder_memory_bytes(8) - wide.build_memory_bytes(8), PROGRAM_BYTES);
        assert_eq!(wide.build_memory_bytes(8) - wide.spooled_memory_bytes(8), wide.values_bytes());
        let shared = Estimate { elements: elements / 10, ..wide };
        assert!(shared.builder_memory_bytes(8) < bytes / 6);
    }

    #[test]
    fn sparse_values_with_many_entries_have_codes() {
        let elements = 1_000_000;
        let of = |dims, entries: usize| {
            let value_len = 4 + 8 * entries;
            Estimate { value_type: ValueType::SparseVec, dims, value_len, m: 16, rows: elements, elements }
        };
        let beside_values = |estimate: Estimate| estimate.values_bytes() - elements * estimate.value_len as u64;
        assert_eq!(beside_values(of(30_000, 120)), 0);
        let codes = beside_values(of(800, 100));
        assert!((780 * elements..=800 * elements).contains(&codes), "{codes}");
    }
}
