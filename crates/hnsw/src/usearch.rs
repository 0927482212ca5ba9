//! The engine on top of the `usearch` crate.
//!
//! usearch gets element numbers in place of vectors, four bytes each, and a metric that looks the values up in our own store. So no
//! value is held twice, every type and metric is served by the same kernels, and its lists refer to our elements.
#![allow(unsafe_code)] // the metric gets pointers

use std::sync::Arc;

use distance::{Candidate, Kernel};
use graph::{ElementValues, max_level};
use rayon::prelude::*;
use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

use crate::candidates::Candidates;
use crate::complete::{Far, Gathered};
use crate::draft::Draft;
use crate::finish::Job;
use crate::rows::Rows;
use crate::space::{Measure, Space};
use crate::values::ValueStore;
use crate::{BuildError, BuildSpec, Control, Engine, Finished, Phase, Pool, RowBatch};

/// Room made at first, whatever the client expects: growing costs little.
const MAX_FIRST_CAPACITY: u64 = 1 << 20;
/// Candidates for each list: usearch's own lists are shorter than pgvector's.
const AT_LEAST: usize = 128;
/// The first elements are inserted by one thread: many threads in a tiny graph do not see each other's elements.
const ALONE: u32 = 512;

pub(crate) struct UsearchEngine {
    spec: BuildSpec,
    pool: Arc<Pool>,
    control: Control,
    measure: Measure,
    store: Arc<ValueStore>,
    rows: Rows,
    index: Inserter,
}

impl UsearchEngine {
    pub(crate) fn start(
        spec: BuildSpec,
        measure: Measure,
        pool: Arc<Pool>,
        control: Control,
        store: Arc<ValueStore>,
    ) -> Result<Self, BuildError> {
        let index = Inserter::new(&spec, measure.kernel, store.clone(), pool.threads())?;
        let rows = Rows::new(&spec, store.clone());
        control.progress().enter(Phase::Rows, spec.expected_rows);
        Ok(Self { spec, pool, control, measure, store, rows, index })
    }
}

impl Engine for UsearchEngine {
    fn add(&mut self, batch: RowBatch<'_>) -> Result<(), BuildError> {
        self.control.check()?;
        let Self { rows, index, pool, control, spec, .. } = self;
        rows.take(spec, batch, |rows, elements| {
            index.insert(elements.filter(|&element| !rows.is_copy(element)), pool, control)
        })?;
        control.progress().add(batch.tids.len() as u64);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Finished, BuildError> {
        let Self { spec, pool, control, measure, store, mut rows, mut index } = *self;
        let row_count = rows.len();
        control.progress().enter(Phase::Graph, u64::from(rows.elements()));
        let (taken, last) = rows.finish();
        control.progress().add(u64::from(last.start));
        index.insert(last.filter(|&element| !taken.is_copy(element)), &pool, &control)?;
        let points = taken.points();
        let space = Space { measure, store: &store, lifts: &[], codes: None };
        let (draft, candidates) =
            index.read_back(&spec, &points, taken.heap_tids.elements(), space, &pool, &control)?;
        drop(index);
        let order = (0..points.len() as u32).collect();
        let gathered = Gathered {
            points,
            order,
            near: candidates,
            far: Far::none(),
            at_least: AT_LEAST,
            also: None,
            mutual: false,
        };
        Job {
            space,
            searched: measure,
            store: store.clone(),
            spec: &spec,
            pool: &pool,
            control: &control,
            trial: false,
        }
        .complete(draft, gathered, taken, row_count)
    }
}

/// A usearch index over element numbers.
struct Inserter {
    index: Index,
    threads: usize,
    inserted: u64,
}

impl Inserter {
    fn new(spec: &BuildSpec, kernel: Kernel, store: Arc<ValueStore>, threads: usize) -> Result<Self, BuildError> {
        let options = IndexOptions {
            dimensions: size_of::<u32>(),
            metric: MetricKind::L2sq,
            quantization: ScalarKind::I8,
            connectivity: usize::from(spec.m),
            expansion_add: usize::from(spec.ef_construction),
            expansion_search: usize::from(spec.ef_construction),
            multi: false,
        };
        let mut index = Index::new(&options).map_err(|error| BuildError::Memory(error.to_string()))?;
        index.change_metric::<i8>(Box::new(move |a, b| {
            // SAFETY: usearch calls the metric with pointers to two of its vectors, each of the four bytes that `number` made.
            let (a, b) = unsafe { (a.cast::<u32>().read_unaligned(), b.cast::<u32>().read_unaligned()) };
            kernel(store.value(a), store.value(b))
        }));
        let inserter = Self { index, threads, inserted: 0 };
        inserter.reserve(spec.expected_rows.clamp(u64::from(ALONE), MAX_FIRST_CAPACITY))?;
        Ok(inserter)
    }

    fn reserve(&self, capacity: u64) -> Result<(), BuildError> {
        self.index
            .reserve_capacity_and_threads(capacity as usize, self.threads)
            .map_err(|error| BuildError::Memory(error.to_string()))
    }

    /// Inserts elements whose values are in the store, on all threads of the pool.
    fn insert(
        &mut self,
        elements: impl Iterator<Item = u32>,
        pool: &Pool,
        control: &Control,
    ) -> Result<(), BuildError> {
        let elements: Vec<u32> = elements.collect();
        let total = self.inserted + elements.len() as u64;
        if total > self.index.capacity() as u64 {
            self.reserve(total.max(2 * self.index.capacity() as u64))?;
        }
        let insert_one = |&element: &u32| {
            control.check()?;
            self.index.add(u64::from(element), &number(element)).map_err(|error| BuildError::Memory(error.to_string()))
        };
        if self.inserted < u64::from(ALONE) {
            elements.iter().try_for_each(insert_one)?;
        } else {
            pool.run(|| elements.par_iter().try_for_each(insert_one))?;
        }
        self.inserted = total;
        Ok(())
    }

    /// The graph as usearch left it: the lists of the upper layers, and candidates for layer 0.
    fn read_back(
        &self,
        spec: &BuildSpec,
        points: &[u32],
        elements: usize,
        space: Space<'_>,
        pool: &Pool,
        control: &Control,
    ) -> Result<(Draft, Candidates), BuildError> {
        let cap = usize::from(max_level(spec.m));
        let level_of = |&point: &u32| self.index.level_of_key(u64::from(point)).min(cap) as u8;
        let neighbors = |point: u32, layer: u8| self.index.neighbors(point.into(), layer.into()).map(|key| key as u32);
        let mut levels = vec![0; elements];
        for point in points {
            levels[*point as usize] = level_of(point);
        }
        let candidates = Candidates::new(points.len(), 2 * usize::from(spec.m));
        let measure = |(at, &point): (usize, &u32)| {
            control.check()?;
            candidates.add(at, neighbors(point, 0).map(|other| Candidate::new(space.distance(point, other), other)));
            Ok(())
        };
        pool.run(|| points.par_iter().enumerate().try_for_each(measure))?;
        let mut draft = Draft::new(spec.m, levels);
        for &point in points {
            for layer in 1..=draft.level(point) {
                draft.set(point, layer, neighbors(point, layer));
            }
        }
        Ok((draft, candidates))
    }
}

/// The vector that stands for an element in the index.
fn number(element: u32) -> [i8; 4] {
    element.to_ne_bytes().map(|byte| byte as i8)
}
