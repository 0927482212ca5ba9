use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use graph::{ElementValues, HeapTid, HeapTids};
use hashbrown::HashTable;
use highway::{HighwayHash, HighwayHasher, Key};

use super::check;
use super::values::{CHUNK, Chunk, ValueStore};
use crate::{BuildError, BuildSpec, RowBatch};

/// Rows become elements: rows of byte-equal values share one, up to [`BuildSpec::rows_per_element`] each (pgvector's
/// `HnswFindDuplicate`).
pub(crate) struct Rows {
    value_len: Option<usize>,
    rows_per_element: u8,
    store: Arc<ValueStore>,
    /// Elements in published chunks; later elements lie in `pending`.
    published: u32,
    pending: Chunk,
    elements: u32,
    /// For each distinct value, the element that gets the next row with it.
    by_value: HashTable<Entry>,
    hash_key: Key,
    /// For every row in order of arrival: its TID and its element.
    tids: Vec<HeapTid>,
    owners: Vec<u32>,
    /// Rows per element.
    counts: Vec<u8>,
    /// For each element that repeats the value of another, the first element of that value.
    duplicates: HashMap<u32, u32>,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    element: u32,
}

/// All rows taken, none pending.
pub(crate) struct TakenRows {
    pub(crate) heap_tids: HeapTids,
    /// `(duplicate, first element of the same value)`, in ascending order of the duplicate.
    pub(crate) duplicates: Vec<(u32, u32)>,
    /// Whether the rows came in the order of their TIDs.
    pub(super) sorted: bool,
}

impl TakenRows {
    /// Whether an element repeats the value of an earlier one.
    pub(crate) fn is_duplicate(&self, element: u32) -> bool {
        self.duplicates.binary_search_by_key(&element, |&(duplicate, _)| duplicate).is_ok()
    }

    /// All elements but duplicates, in ascending order.
    pub(crate) fn points(&self) -> Vec<u32> {
        (0..self.heap_tids.elements() as u32).filter(|&element| !self.is_duplicate(element)).collect()
    }
}

impl Rows {
    pub(crate) fn new(spec: &BuildSpec, store: Arc<ValueStore>) -> Self {
        let random = RandomState::new();
        let value_len = spec.value_type.value_len(spec.dims);
        Self {
            value_len,
            rows_per_element: spec.rows_per_element,
            store,
            published: 0,
            pending: Chunk::new(value_len),
            elements: 0,
            by_value: HashTable::new(),
            hash_key: Key([0, 1, 2, 3].map(|part: u64| random.hash_one(part))),
            tids: Vec::new(),
            owners: Vec::new(),
            counts: Vec::new(),
            duplicates: HashMap::new(),
        }
    }

    /// Takes a batch; calls `ready` with the numbers of the elements of every chunk that became readable.
    pub(crate) fn take(
        &mut self,
        spec: &BuildSpec,
        batch: RowBatch<'_>,
        mut ready: impl FnMut(&Self, std::ops::Range<u32>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let mut rest = batch.values;
        for (at, &tid) in batch.tids.iter().enumerate() {
            let row = self.tids.len() as u64;
            let len = match self.value_len {
                Some(len) => len,
                None => batch.lengths.get(at).map_or(usize::MAX, |&len| len as usize),
            };
            let Some((value, after)) = rest.split_at_checked(len) else {
                return Err(BuildError::ValueLength { row, found: rest.len(), expected: len });
            };
            rest = after;
            check::check(spec, row, value)?;
            if !tid.is_valid() {
                return Err(BuildError::Value { row, problem: "of no valid heap TID" });
            }
            self.place(tid, value)?;
            if self.elements - self.published == CHUNK as u32 {
                let chunk = self.publish(|store, chunk| store.keep(chunk))?;
                ready(self, chunk)?;
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        Err(BuildError::ValueLength { row: self.tids.len() as u64, found: rest.len(), expected: 0 })
    }

    /// Publishes the pending chunk, and returns all rows.
    pub(crate) fn finish(&mut self) -> (TakenRows, std::ops::Range<u32>) {
        let Ok(last) = self.publish(|store, chunk| {
            store.publish(chunk);
            Ok::<_, Infallible>(())
        });
        self.by_value = HashTable::new();
        let sorted = self.tids.is_sorted_by_key(|tid| tid.place());
        let mut starts = Vec::with_capacity(self.counts.len());
        let mut total = 0usize;
        for &count in &self.counts {
            starts.push(total);
            total += usize::from(count);
        }
        let mut grouped = vec![HeapTid::default(); total];
        for (&tid, &owner) in self.tids.iter().zip(&self.owners) {
            let next = &mut starts[owner as usize];
            grouped[*next] = tid;
            *next += 1;
        }
        let mut heap_tids = HeapTids::with_capacity(self.counts.len(), total);
        let mut grouped = grouped.as_slice();
        for &count in &self.counts {
            let (own, rest) = grouped.split_at(usize::from(count));
            heap_tids.push(own.iter().copied());
            grouped = rest;
        }
        (self.tids, self.owners, self.counts) = (Vec::new(), Vec::new(), Vec::new());
        let mut duplicates: Vec<_> = std::mem::take(&mut self.duplicates).into_iter().collect();
        duplicates.sort_unstable();
        (TakenRows { heap_tids, duplicates, sorted }, last)
    }

    /// Whether an element repeats the value of an earlier one.
    #[cfg(feature = "usearch")]
    pub(crate) fn is_duplicate(&self, element: u32) -> bool {
        self.duplicates.contains_key(&element)
    }

    fn place(&mut self, tid: HeapTid, value: &[u8]) -> Result<(), BuildError> {
        let hash = HighwayHasher::new(self.hash_key).hash64(value) as u32;
        let same = |entry: &Entry| entry.hash == hash && self.value(entry.element) == value;
        let found = self.by_value.find(spread(hash), same).copied();
        let element = match found {
            Some(Entry { element, .. }) if self.counts[element as usize] < self.rows_per_element => element,
            _ => {
                let element = self.elements;
                // Element numbers are u32, the last is the mark of an unused slot.
                if element == u32::MAX - 1 {
                    return Err(BuildError::TooManyElements(u64::from(element)));
                }
                self.elements += 1;
                self.pending.push(value);
                self.counts.push(0);
                self.enter(hash, element, found.map(|entry| entry.element));
                element
            }
        };
        self.counts[element as usize] += 1;
        self.tids.push(tid);
        self.owners.push(element);
        Ok(())
    }

    /// Makes `element` the one that gets the next row of its value, in place of `full`.
    fn enter(&mut self, hash: u32, element: u32, full: Option<u32>) {
        match full {
            Some(full) => {
                let first = self.duplicates.get(&full).copied().unwrap_or(full);
                self.duplicates.insert(element, first);
                if let Some(entry) = self.by_value.find_mut(spread(hash), |entry| entry.element == full) {
                    entry.element = element;
                }
            }
            None => {
                self.by_value.insert_unique(spread(hash), Entry { hash, element }, |entry| spread(entry.hash));
            }
        }
    }

    fn value(&self, element: u32) -> &[u8] {
        match element.checked_sub(self.published) {
            Some(at) => self.pending.value(at as usize),
            None => self.store.value(element),
        }
    }

    fn publish<E>(
        &mut self,
        keep: impl FnOnce(&ValueStore, Chunk) -> Result<(), E>,
    ) -> Result<std::ops::Range<u32>, E> {
        let chunk = std::mem::replace(&mut self.pending, Chunk::new(self.value_len));
        let first = std::mem::replace(&mut self.published, self.elements);
        if first < self.elements {
            keep(&self.store, chunk)?;
        }
        Ok(first..self.elements)
    }
}

/// The table uses the highest bits for one purpose and the lowest for another.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graph::{ElementValues, HeapTid, ValueType};

    use super::Rows;
    use crate::input::ValueStore;
    use crate::{BuildError, BuildSpec, RowBatch, Storage, testing};

    fn spec(value_type: ValueType) -> BuildSpec {
        BuildSpec { value_type, ..testing::spec(1) }
    }

    #[test]
    fn equal_rows_share_elements_of_ten() {
        let (spec, store) = (spec(ValueType::Vector), Arc::new(ValueStore::new(Storage::default())));
        let mut rows = Rows::new(&spec, store.clone());
        // 25 rows of one value, with others between them.
        let numbers: Vec<f32> = (0..50).map(|at| if at % 2 == 0 { 7.0 } else { at as f32 }).collect();
        let values: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        let tids: Vec<_> = (1..=50).map(|offset| HeapTid::new(3, offset)).collect();
        rows.take(&spec, RowBatch { tids: &tids, values: &values, lengths: &[] }, |_, _| Ok(())).unwrap();
        let (taken, last) = rows.finish();
        // 7.0 also comes from an odd row.
        assert_eq!(taken.heap_tids.elements(), 24 + 3);
        assert_eq!(last, 0..27);
        let of_seven: Vec<_> = (0..27).filter(|&e| store.value(e) == 7f32.to_le_bytes()).collect();
        let counts: Vec<_> = of_seven.iter().map(|&e| taken.heap_tids.of(e).len()).collect();
        assert_eq!(counts, [10, 10, 6]);
        assert_eq!(taken.duplicates, [(of_seven[1], of_seven[0]), (of_seven[2], of_seven[0])]);
        assert_eq!(taken.heap_tids.of(0)[..2], [tids[0], tids[2]]);
    }

    #[test]
    fn chunks_are_announced_when_readable() {
        let (spec, store) = (spec(ValueType::HalfVec), Arc::new(ValueStore::new(Storage::default())));
        let mut rows = Rows::new(&spec, store.clone());
        let values: Vec<u8> = (0u16..1100).flat_map(u16::to_le_bytes).collect();
        let tids = vec![HeapTid::new(0, 1); 1100];
        let mut seen = Vec::new();
        let batch = RowBatch { tids: &tids, values: &values, lengths: &[] };
        rows.take(&spec, batch, |_, range| {
            assert_eq!(store.value(range.end - 1), (range.end as u16 - 1).to_le_bytes());
            seen.push(range);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [0..512, 512..1024]);
        assert_eq!(rows.finish().1, 1024..1100);
        assert_eq!(store.value(1099), 1099u16.to_le_bytes());
    }

    #[test]
    fn values_must_fit_the_rows() {
        let spec = spec(ValueType::SparseVec);
        let mut rows = Rows::new(&spec, Arc::new(ValueStore::new(Storage::default())));
        let tids = [HeapTid::new(0, 1)];
        let mut take = |values: &[u8], lengths: &[u32]| {
            rows.take(&spec, RowBatch { tids: &tids, values, lengths }, |_, _| Ok(())).unwrap_err()
        };
        assert!(matches!(take(&[0; 4], &[5]), BuildError::ValueLength { found: 4, expected: 5, .. }));
        assert!(matches!(take(&[0; 4], &[]), BuildError::ValueLength { .. }));
        assert!(matches!(take(&[0; 5], &[4]), BuildError::ValueLength { found: 1, expected: 0, .. }));
    }
}
