//! The engine on top of the `usearch` crate.
//!
//! usearch stores element numbers of four bytes in place of vectors, and its metric reads the values from our store. So no value is stored
//! twice, and all types and metrics use our kernels.
#![allow(unsafe_code)] // the metric gets pointers

use std::sync::Arc;

use distance::Candidate;
use graph::{ElementValues, max_level};
use rayon::prelude::*;
use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

use super::finish::Completion;
use super::intake::{Intake, Setup};
use crate::candidates::Candidates;
use crate::draft::Draft;
use crate::select::Gathered;
use crate::space::Space;
use crate::{BuildError, BuildSpec, Control, Engine, Finished, Phase, Pool, RowBatch};

/// The largest initial capacity, even if the client expects more rows: growing costs little.
const MAX_FIRST_CAPACITY: u64 = 1 << 20;
/// A point with fewer candidates also gets its candidates' candidates: usearch's lists are shorter than pgvector's.
const AT_LEAST: usize = 128;
/// The first elements are inserted by one thread: in a tiny graph, concurrent threads do not see each other's elements.
const ALONE: u32 = 512;

pub(crate) struct UsearchEngine {
    intake: Intake,
    index: Inserter,
}

impl UsearchEngine {
    pub(crate) fn start(setup: Setup) -> Result<Self, BuildError> {
        let index = Inserter::new(&setup)?;
        Ok(Self { intake: Intake::new(setup), index })
    }
}

impl Engine for UsearchEngine {
    fn add_all(&mut self, batches: &[RowBatch<'_>]) -> Result<(), BuildError> {
        let Self { intake, index } = self;
        intake.add(batches, |rows, elements| index.insert(elements.filter(|&element| !rows.is_duplicate(element))))
    }

    fn finish(self: Box<Self>) -> Result<Finished, BuildError> {
        let Self { intake, mut index } = *self;
        let (setup, taken, last) = intake.finish()?;
        let elements = taken.heap_tids.elements();
        setup.control.progress().enter(Phase::Graph, elements as u64);
        setup.control.progress().add(last.start.into());
        index.insert(last.filter(|&element| !taken.is_duplicate(element)))?;
        let points = taken.points();
        let space = setup.searched();
        let (draft, near) = index.read_back(&setup.spec, &points, elements, space)?;
        drop(index);
        let gathered = Gathered::by_insertion(points, near, AT_LEAST);
        Completion { setup: &setup, space, trial: false }.run(draft, gathered, taken)
    }
}

/// A usearch index over element numbers.
struct Inserter {
    index: Index,
    pool: Arc<Pool>,
    control: Control,
    inserted: u64,
}

impl Inserter {
    fn new(setup: &Setup) -> Result<Self, BuildError> {
        let (spec, kernel, store) = (&setup.spec, setup.measure.kernel, setup.store.clone());
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
        let inserter = Self { index, pool: setup.pool.clone(), control: setup.control.clone(), inserted: 0 };
        inserter.reserve(spec.expected_rows.clamp(u64::from(ALONE), MAX_FIRST_CAPACITY))?;
        Ok(inserter)
    }

    fn reserve(&self, capacity: u64) -> Result<(), BuildError> {
        self.index
            .reserve_capacity_and_threads(capacity as usize, self.pool.threads())
            .map_err(|error| BuildError::Memory(error.to_string()))
    }

    /// Inserts elements whose values are in the store, on all threads of the pool.
    fn insert(&mut self, elements: impl Iterator<Item = u32>) -> Result<(), BuildError> {
        let elements: Vec<u32> = elements.collect();
        let total = self.inserted + elements.len() as u64;
        if total > self.index.capacity() as u64 {
            self.reserve(total.max(2 * self.index.capacity() as u64))?;
        }
        let insert_one = |&element: &u32| {
            self.control.check()?;
            self.index.add(u64::from(element), &number(element)).map_err(|error| BuildError::Memory(error.to_string()))
        };
        if self.inserted < u64::from(ALONE) {
            elements.iter().try_for_each(insert_one)?;
        } else {
            self.pool.run(|| elements.par_iter().try_for_each(insert_one))?;
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
            self.control.check()?;
            candidates.add(at, neighbors(point, 0).map(|other| Candidate::new(space.distance(point, other), other)));
            Ok(())
        };
        self.pool.run(|| points.par_iter().enumerate().try_for_each(measure))?;
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
