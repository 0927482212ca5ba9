//! Numbers elements by heap TID, so that the order in which rows arrived does not matter.

use graph::{HeapTid, HeapTids};
use rayon::prelude::*;

use super::{TakenRows, ValueStore};
use crate::Pool;

impl TakenRows {
    /// Numbers elements by the TIDs of their first rows, and assigns duplicates to elements in that order, as if all rows had arrived in
    /// the order of their TIDs. Parallel workers send rows in another order each time, and the graph must not depend on which was
    /// faster.
    ///
    /// Values are not moved. The cost is a sort of one TID per element (a tenth of a second for a million on one thread), four bytes per
    /// element until the build ends, and 16 while this runs; nothing if rows arrived in order.
    pub(crate) fn by_tid(mut self, store: &ValueStore, pool: &Pool) -> Self {
        if self.sorted {
            return self;
        }
        self.share_out();
        let order = pool.run(|| order(&self.heap_tids));
        let mut heap_tids = HeapTids::with_capacity(self.heap_tids.elements(), self.heap_tids.rows());
        order.iter().for_each(|&element| heap_tids.push(self.heap_tids.of(element).iter().copied()));
        self.heap_tids = heap_tids;
        if !self.duplicates.is_empty() {
            let mut numbers = vec![0; order.len()];
            order.iter().zip(0..).for_each(|(&element, number)| numbers[element as usize] = number);
            let number = |element: u32| numbers[element as usize];
            self.duplicates.iter_mut().for_each(|pair| *pair = (number(pair.0), number(pair.1)));
            self.duplicates.sort_unstable();
        }
        store.renumber(order);
        Self { sorted: true, ..self }
    }

    /// Distributes the TIDs of each value over its elements in ascending order.
    fn share_out(&mut self) {
        let tids = &mut self.heap_tids;
        let mut pairs: Vec<_> = self.duplicates.iter().map(|&(duplicate, first)| (first, duplicate)).collect();
        pairs.sort_unstable();
        for same in pairs.chunk_by(|a, b| a.0 == b.0) {
            let elements = || same[..1].iter().map(|pair| pair.0).chain(same.iter().map(|pair| pair.1));
            let mut all: Vec<_> = elements().flat_map(|element| tids.of(element).to_vec()).collect();
            all.sort_unstable_by_key(|tid| tid.place());
            let mut all = all.as_slice();
            for element in elements() {
                let own = tids.of_mut(element);
                let (first, rest) = all.split_at(own.len());
                own.copy_from_slice(first);
                all = rest;
            }
        }
        (0..tids.elements() as u32).for_each(|element| tids.of_mut(element).sort_unstable_by_key(|tid| tid.place()));
    }
}

/// The elements in the order of their first TIDs.
fn order(tids: &HeapTids) -> Vec<u32> {
    let place = |element| (tids.of(element).first().copied().map_or(0, HeapTid::place), element);
    let mut places: Vec<(u64, u32)> = (0..tids.elements() as u32).into_par_iter().map(place).collect();
    places.par_sort_unstable();
    places.into_par_iter().map(|(_, element)| element).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graph::{ElementValues, HeapTid, ValueType};

    use crate::input::{Rows, TakenRows, ValueStore};
    use crate::random::Random;
    use crate::{BuildSpec, Control, Pool, RowBatch, Storage, testing};

    const ROWS: u32 = 3000;

    /// Takes rows in this order, a few at a time, and numbers them.
    fn take(order: &[u32]) -> (TakenRows, Vec<Vec<u8>>) {
        let spec = BuildSpec { value_type: ValueType::Vector, ..testing::spec(1) };
        let store = Arc::new(ValueStore::new(Storage::default()));
        let pool = Arc::new(Pool::new(2).unwrap());
        let mut rows = Rows::new(&spec, store.clone(), pool.clone(), Control::default());
        for batch in order.chunks(7) {
            let tids: Vec<_> = batch.iter().map(|row| HeapTid::new(row / 50, (row % 50) as u16 + 1)).collect();
            // Many rows have values of their own, others share one of 40.
            let value = |row: u32| if row.is_multiple_of(3) { (row % 40) as f32 } else { row as f32 };
            let values: Vec<u8> = batch.iter().flat_map(|&row| value(row).to_le_bytes()).collect();
            rows.take(&[RowBatch { tids: &tids, values: &values, lengths: &[] }], |_, _| Ok(())).unwrap();
        }
        let taken = rows.finish().0.by_tid(&store, &pool);
        let values = (0..taken.heap_tids.elements() as u32).map(|element| store.value(element).to_vec()).collect();
        (taken, values)
    }

    #[test]
    fn the_order_of_arrival_does_not_change_elements() {
        let in_order: Vec<u32> = (0..ROWS).collect();
        let expected = take(&in_order);
        assert!(!expected.0.duplicates.is_empty());
        let mut shuffled = in_order.clone();
        let mut random = Random::new(5);
        (1..ROWS as usize).for_each(|at| shuffled.swap(at, (random.unit() * at as f64) as usize));
        let runs: Vec<u32> = (0..4).flat_map(|run| (0..ROWS).filter(move |row| row / 100 % 4 == run)).collect();
        for order in [in_order.iter().rev().copied().collect(), shuffled, runs] {
            assert_ne!(order, in_order);
            let found = take(&order);
            assert!(found.1 == expected.1, "values");
            assert_eq!(found.0.duplicates, expected.0.duplicates);
            let of = |taken: &TakenRows| -> Vec<Vec<HeapTid>> {
                (0..taken.heap_tids.elements() as u32).map(|element| taken.heap_tids.of(element).to_vec()).collect()
            };
            assert_eq!(of(&found.0), of(&expected.0));
        }
    }
}
