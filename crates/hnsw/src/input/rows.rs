//! Rows become elements: which rows share one?

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use graph::{ElementValues, HeapTid, HeapTids};
use hashbrown::HashTable;
use highway::{HighwayHash, HighwayHasher, Key};
use rayon::prelude::*;

use super::check;
use super::values::{CHUNK, Chunk, ValueStore};
use crate::{BuildError, BuildSpec, Control, Pool, RowBatch};

/// Bytes of values that a task checks or copies: some ten microseconds of work.
const TASK: usize = 128 << 10;

/// Fewer bytes are checked and copied by the calling thread alone: to wake the pool's threads would cost more. A client's batch has half of
/// this, so that these threads help once two batches wait.
const ALONE: usize = 512 << 10;

/// How many of these values make a task, or `None` if they are too few for tasks.
fn values_per_task(values: &[&[u8]]) -> Option<usize> {
    let bytes: usize = values.iter().map(|value| value.len()).sum();
    (bytes >= ALONE).then(|| values.len().div_ceil(bytes / TASK))
}

/// Rows of byte-equal values share an element, up to [`BuildSpec::rows_per_element`] each (pgvector's
/// `HnswFindDuplicate`).
///
/// The pool's threads check, hash and copy values; the calling thread alone looks for equal ones.
pub(crate) struct Rows {
    spec: BuildSpec,
    value_len: Option<usize>,
    store: Arc<ValueStore>,
    pool: Arc<Pool>,
    control: Control,
    /// Elements in published chunks; later elements lie in `pending`, and behind these in the batches that are being taken.
    published: u32,
    pending: Chunk,
    elements: u32,
    /// For each distinct value, the element that gets the next row with it.
    by_value: HashTable<Entry>,
    /// Cloned for each value. Its key is random, so that nobody can choose values whose hashes collide.
    hasher: HighwayHasher,
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

/// All rows of a build, as elements.
pub(crate) struct TakenRows {
    pub(crate) heap_tids: HeapTids,
    /// `(duplicate, first element of the same value)`, in ascending order of the duplicate.
    pub(crate) duplicates: Vec<(u32, u32)>,
    /// Whether the rows came in the order of their TIDs.
    pub(super) sorted: bool,
}

impl TakenRows {
    /// Whether an element repeats the value of an earlier one.
    #[cfg(feature = "usearch")]
    pub(crate) fn is_duplicate(&self, element: u32) -> bool {
        self.duplicates.binary_search_by_key(&element, |&(duplicate, _)| duplicate).is_ok()
    }

    /// All elements but duplicates, in ascending order.
    pub(crate) fn points(&self) -> Vec<u32> {
        let mut duplicates = self.duplicates.iter().map(|&(duplicate, _)| duplicate).peekable();
        (0..self.heap_tids.elements() as u32).filter(|element| duplicates.next_if_eq(element).is_none()).collect()
    }
}

impl Rows {
    pub(crate) fn new(spec: &BuildSpec, store: Arc<ValueStore>, pool: Arc<Pool>, control: Control) -> Self {
        let random = RandomState::new();
        let value_len = spec.value_type.value_len(spec.dims);
        Self {
            spec: spec.clone(),
            value_len,
            store,
            pool,
            control,
            published: 0,
            pending: Chunk::new(value_len),
            elements: 0,
            by_value: HashTable::new(),
            hasher: HighwayHasher::new(Key([0, 1, 2, 3].map(|part: u64| random.hash_one(part)))),
            tids: Vec::new(),
            owners: Vec::new(),
            counts: Vec::new(),
            duplicates: HashMap::new(),
        }
    }

    /// Takes batches; calls `ready` with the numbers of the elements of every chunk that became readable.
    pub(crate) fn take(
        &mut self,
        batches: &[RowBatch<'_>],
        mut ready: impl FnMut(&Self, Range<u32>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let (tids, values) = self.cut(batches)?;
        let hashes = self.checked_hashes(&tids, &values)?;
        let mut new = Vec::with_capacity(values.len());
        for ((tid, value), hash) in tids.into_iter().zip(values).zip(hashes) {
            self.place(tid, value, hash, &mut new)?;
        }
        for chunk in self.copies(&new)? {
            self.pending = chunk;
            if self.pending.len() == CHUNK {
                let elements = self.publish(|store, chunk| store.keep(chunk))?;
                ready(self, elements)?;
            }
        }
        Ok(())
    }

    /// The TIDs and values of all rows of the batches.
    fn cut<'a>(&self, batches: &[RowBatch<'a>]) -> Result<(Vec<HeapTid>, Vec<&'a [u8]>), BuildError> {
        let first = self.tids.len();
        let tids: Vec<_> = batches.iter().flat_map(|batch| batch.tids).copied().collect();
        let mut values = Vec::with_capacity(tids.len());
        for batch in batches {
            let mut rest = batch.values;
            for at in 0..batch.tids.len() {
                let row = (first + values.len()) as u64;
                let sent = || batch.lengths.get(at).map(|&len| len as usize);
                let Some(len) = self.value_len.or_else(sent) else {
                    return Err(BuildError::Value { row, problem: "sent without its length" });
                };
                let Some((value, after)) = rest.split_at_checked(len) else {
                    return Err(BuildError::ValueLength { row, found: rest.len(), expected: len });
                };
                values.push(value);
                rest = after;
            }
            if !rest.is_empty() {
                return Err(BuildError::TrailingBytes(rest.len()));
            }
        }
        Ok((tids, values))
    }

    /// Checks rows, and hashes their values. Fails with the first invalid row.
    fn checked_hashes(&self, tids: &[HeapTid], values: &[&[u8]]) -> Result<Vec<u32>, BuildError> {
        let first = self.tids.len() as u64;
        let row = |(at, (tid, value)): (usize, (&HeapTid, &&[u8]))| {
            let row = first + at as u64;
            check::check(&self.spec, row, value)?;
            if !tid.is_valid() {
                return Err(BuildError::HeapTid { row });
            }
            Ok(self.hasher.clone().hash64(value) as u32)
        };
        let Some(each) = values_per_task(values) else {
            return tids.iter().zip(values).enumerate().map(row).collect();
        };
        self.control.ran("intake");
        let section = self.control.section("checks of rows");
        let hashes: Vec<Result<Vec<u32>, BuildError>> = self.pool.run(|| {
            section.map(tids.par_chunks(each).zip(values.par_chunks(each)).enumerate(), |(task, (tids, values))| {
                Ok((task * each..).zip(tids.iter().zip(values)).map(row).collect())
            })
        })?;
        Ok(hashes.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Copies the values of new elements into the pending chunk and further ones, of which only the last may be short.
    fn copies(&mut self, new: &[&[u8]]) -> Result<Vec<Chunk>, BuildError> {
        let mut chunks = vec![std::mem::take(&mut self.pending)];
        let (first, rest) = new.split_at(new.len().min(CHUNK - chunks[0].len()));
        let parts: Vec<_> = iter::once(first).chain(rest.chunks(CHUNK)).collect();
        chunks.resize_with(parts.len(), || Chunk::new(self.value_len));
        let slots = chunks.iter_mut().zip(parts).flat_map(|(chunk, values)| chunk.append(values));
        let mut copies: Vec<_> = slots.zip(new).collect();
        let copy = |copies: &mut [(&mut [u8], &&[u8])]| {
            copies.iter_mut().for_each(|(slot, value)| slot.copy_from_slice(value));
        };
        match values_per_task(new) {
            None => copy(&mut copies),
            Some(each) => self.pool.run(|| {
                self.control.ran("intake");
                let section = self.control.section("copies of values");
                section.for_each(copies.par_chunks_mut(each), |copies| {
                    copy(copies);
                    Ok(())
                })
            })?,
        }
        Ok(chunks)
    }

    /// Publishes the pending chunk, and returns all rows.
    pub(crate) fn finish(&mut self) -> (TakenRows, Range<u32>) {
        let Ok(last) = self.publish(|store, chunk| {
            store.publish(chunk);
            Ok::<_, Infallible>(())
        });
        self.by_value = HashTable::new();
        let sorted = self.tids.is_sorted_by_key(|tid| tid.place());
        let heap_tids = HeapTids::of_rows(&self.tids, &self.owners, &self.counts);
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

    /// Assigns a row to an element. The value of a new element is added to `new`.
    fn place<'a>(
        &mut self,
        tid: HeapTid,
        value: &'a [u8],
        hash: u32,
        new: &mut Vec<&'a [u8]>,
    ) -> Result<(), BuildError> {
        let same = |entry: &Entry| entry.hash == hash && self.value(entry.element, new) == value;
        let found = self.by_value.find(spread(hash), same).copied();
        let element = match found {
            Some(Entry { element, .. }) if self.counts[element as usize] < self.spec.rows_per_element => element,
            _ => {
                let element = self.elements;
                // Element numbers are u32; `NO_NEIGHBOR`, the greatest, marks a free slot.
                if element == u32::MAX - 1 {
                    return Err(BuildError::TooManyElements(u64::from(element)));
                }
                self.elements += 1;
                new.push(value);
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

    /// The value of an element. `new` has the values that follow the pending ones.
    fn value<'a>(&'a self, element: u32, new: &[&'a [u8]]) -> &'a [u8] {
        let Some(at) = element.checked_sub(self.published) else { return self.store.value(element) };
        match (at as usize).checked_sub(self.pending.len()) {
            Some(at) => new[at],
            None => self.pending.value(at as usize),
        }
    }

    fn publish<E>(&mut self, keep: impl FnOnce(&ValueStore, Chunk) -> Result<(), E>) -> Result<Range<u32>, E> {
        let chunk = std::mem::replace(&mut self.pending, Chunk::new(self.value_len));
        let first = self.published;
        self.published += chunk.len() as u32;
        if first < self.published {
            keep(&self.store, chunk)?;
        }
        Ok(first..self.published)
    }
}

/// The hash for the table, which takes an entry's tag from the highest bits and its bucket from the lowest.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graph::{ElementValues, HeapTid, ValueType};

    use super::Rows;
    use crate::input::ValueStore;
    use crate::{BuildError, BuildSpec, Control, Pool, RowBatch, Storage, testing};

    fn spec(value_type: ValueType) -> BuildSpec {
        BuildSpec { value_type, ..testing::spec(1) }
    }

    fn rows(spec: &BuildSpec, store: &Arc<ValueStore>) -> Rows {
        Rows::new(spec, store.clone(), Arc::new(Pool::new(2).unwrap()), Control::default())
    }

    #[test]
    fn equal_rows_share_elements_of_ten() {
        let (spec, store) = (spec(ValueType::Vector), Arc::new(ValueStore::new(Storage::default())));
        let mut rows = rows(&spec, &store);
        // 25 rows of one value, with others between them.
        let numbers: Vec<f32> = (0..50).map(|at| if at % 2 == 0 { 7.0 } else { at as f32 }).collect();
        let values: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        let tids: Vec<_> = (1..=50).map(|offset| HeapTid::new(3, offset)).collect();
        rows.take(&[RowBatch { tids: &tids, values: &values, lengths: &[] }], |_, _| Ok(())).unwrap();
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
        let mut rows = rows(&spec, &store);
        let values: Vec<u8> = (0u16..1100).flat_map(u16::to_le_bytes).collect();
        let tids = vec![HeapTid::new(0, 1); 1100];
        let mut seen = Vec::new();
        let batch = RowBatch { tids: &tids, values: &values, lengths: &[] };
        rows.take(&[batch], |_, range| {
            assert_eq!(store.value(range.end - 1), (range.end as u16 - 1).to_le_bytes());
            seen.push(range);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [0..512, 512..1024]);
        assert_eq!(rows.finish().1, 1024..1100);
        assert_eq!(store.value(1099), 1099u16.to_le_bytes());
    }

    /// 3,000 rows, a third of which repeat one of 40 values, for several chunks and several tasks of the pool.
    fn many(value_type: ValueType) -> (BuildSpec, Vec<(HeapTid, Vec<u8>)>) {
        let spec = BuildSpec { dims: 100, ..spec(value_type) };
        let value = |row: u32| {
            let number = if row.is_multiple_of(3) { row % 40 } else { row };
            match value_type {
                ValueType::SparseVec => {
                    testing::sparse(&(0..1 + number % 99).map(|dim| (dim, 1.0 + number as f32)).collect::<Vec<_>>())
                }
                _ => vec![(number as f32).to_le_bytes(); 100].concat(),
            }
        };
        (spec, (0..3000).map(|row| (HeapTid::new(row, 1), value(row))).collect())
    }

    fn take_all(rows: &mut Rows, all: &[(HeapTid, Vec<u8>)], per_batch: usize) -> Result<(), BuildError> {
        all.chunks(per_batch).try_for_each(|batch| {
            let (tids, values): (Vec<_>, Vec<_>) = batch.iter().map(|(tid, value)| (*tid, value.as_slice())).unzip();
            let lengths: Vec<_> = values.iter().map(|value| value.len() as u32).collect();
            rows.take(&[RowBatch { tids: &tids, values: &values.concat(), lengths: &lengths }], |_, _| Ok(()))
        })
    }

    #[test]
    fn the_size_of_batches_does_not_change_elements() {
        for value_type in [ValueType::Vector, ValueType::SparseVec] {
            let (spec, all) = many(value_type);
            let taken = |per_batch: usize| {
                let store = Arc::new(ValueStore::new(Storage::default()));
                let mut rows = rows(&spec, &store);
                take_all(&mut rows, &all, per_batch).unwrap();
                let taken = rows.finish().0;
                let elements = 0..taken.heap_tids.elements() as u32;
                let values: Vec<_> = elements.clone().map(|element| store.value(element).to_vec()).collect();
                let tids: Vec<_> = elements.map(|element| taken.heap_tids.of(element).to_vec()).collect();
                (values, tids, taken.duplicates)
            };
            let expected = taken(1);
            assert_eq!(expected.0.len(), 1974 + 40 * 3);
            for (value, tids) in expected.0.iter().zip(&expected.1) {
                assert!(tids.iter().all(|tid| all[tid.place() as usize >> 16].1 == *value));
            }
            assert!(taken(3000) == expected && taken(700) == expected, "{value_type:?}");
        }
    }

    #[test]
    fn the_first_bad_row_is_named() {
        let (spec, mut all) = many(ValueType::Vector);
        for row in [2900, 2100, 2950] {
            all[row].1[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        let mut rows = rows(&spec, &Arc::new(ValueStore::new(Storage::default())));
        assert!(matches!(take_all(&mut rows, &all, 3000), Err(BuildError::Value { row: 2100, .. })));
    }

    #[test]
    fn a_row_needs_a_valid_heap_tid() {
        let (spec, mut all) = many(ValueType::Vector);
        all[7].0 = HeapTid::new(0, 0);
        let mut rows = rows(&spec, &Arc::new(ValueStore::new(Storage::default())));
        let error = take_all(&mut rows, &all, 3000).unwrap_err();
        assert_eq!(error.to_string(), "row 7 has an invalid heap TID");
    }

    #[test]
    fn values_must_have_the_lengths_of_their_batch() {
        let spec = spec(ValueType::SparseVec);
        let mut rows = rows(&spec, &Arc::new(ValueStore::new(Storage::default())));
        let tids = [HeapTid::new(0, 1)];
        let mut take = |values: &[u8], lengths: &[u32]| {
            rows.take(&[RowBatch { tids: &tids, values, lengths }], |_, _| Ok(())).unwrap_err()
        };
        assert!(matches!(take(&[0; 4], &[5]), BuildError::ValueLength { found: 4, expected: 5, .. }));
        assert_eq!(take(&[0; 4], &[]).to_string(), "row 0 has a value that is sent without its length");
        assert_eq!(take(&[0; 5], &[4]).to_string(), "1 bytes follow the last value of a batch of rows");
    }
}
