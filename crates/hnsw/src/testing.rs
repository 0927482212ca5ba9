//! Helpers for unit tests: a build description, values in a store, exact distances, reachability.

use std::sync::Arc;

use distance::{Elements, Metric};
use graph::ValueType;

use crate::draft::Draft;
use crate::input::{CHUNK, Chunk, Storage, ValueStore};
use crate::random::Random;
use crate::space::{Measure, Space};
use crate::{BuildSpec, Pool};

/// A build of `vector` values by L2 with m = 16.
pub(crate) fn spec(dims: usize) -> BuildSpec {
    BuildSpec::new(ValueType::Vector, Metric::L2, dims as u32, 16, 64)
}

/// One thread.
pub(crate) fn pool() -> Pool {
    Pool::new(1).expect("a thread")
}

/// A store with an element for each point.
pub(crate) fn store<const DIMS: usize>(points: &[[f32; DIMS]]) -> Arc<ValueStore> {
    store_of(points.iter().map(|point| point.map(f32::to_le_bytes).concat()))
}

/// A store with an element for each value, all of one length.
pub(crate) fn store_of(values: impl Iterator<Item = Vec<u8>>) -> Arc<ValueStore> {
    let store = ValueStore::new(Storage::default());
    let values: Vec<Vec<u8>> = values.collect();
    for values in values.chunks(CHUNK) {
        let mut chunk = Chunk::new(values.first().map(Vec::len));
        let slots = chunk.append(&values.iter().map(Vec::as_slice).collect::<Vec<_>>());
        slots.into_iter().zip(values).for_each(|(slot, value)| slot.copy_from_slice(value));
        store.publish(chunk);
    }
    Arc::new(store)
}

/// A sparse value in its encoding: dimensions with their numbers.
pub(crate) fn sparse(entries: &[(u32, f32)]) -> Vec<u8> {
    let count = (entries.len() as u32).to_le_bytes();
    let dims = entries.iter().flat_map(|(dim, _)| dim.to_le_bytes());
    count.into_iter().chain(dims).chain(entries.iter().flat_map(|(_, x)| x.to_le_bytes())).collect()
}

/// The points of a store by L2, exact.
pub(crate) fn euclidean<const DIMS: usize>(store: &ValueStore) -> Space<'_> {
    let measure = Measure::new(Elements::F32, Metric::L2, DIMS as u32).expect("vectors have L2");
    Space::exact(measure, store)
}

/// Random points of a cube of edge 2.
pub(crate) fn cube<const DIMS: usize>(count: usize, seed: u64) -> Vec<[f32; DIMS]> {
    let mut random = Random::new(seed);
    (0..count).map(|_| std::array::from_fn(|_| 2.0 * random.unit() as f32 - 1.0)).collect()
}

/// The number of elements that are reachable at layer 0 from `start`, with `start` itself.
pub(crate) fn reached(draft: &Draft, start: u32) -> usize {
    let (mut seen, mut next) = (vec![start], 0);
    while next < seen.len() {
        let new: Vec<u32> = draft.neighbors(seen[next], 0).to_vec();
        seen.extend(new.into_iter().filter(|new| !seen.contains(new)).collect::<Vec<_>>());
        next += 1;
    }
    seen.len()
}
