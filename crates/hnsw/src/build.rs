//! The API of a build: parameters and rows in, a finished graph out.

use std::sync::Arc;

use distance::{Elements, Metric};
use graph::{ElementValues, Graph, HEAP_TIDS_PER_ELEMENT, HeapTid, ValueType};
use pgvector::{EF_CONSTRUCTION_RANGE, M_RANGE, min_ef_construction};

#[cfg(feature = "usearch")]
use crate::engines::UsearchEngine;
use crate::engines::{BulkEngine, InsertionEngine, Setup};
use crate::input::ValueStore;
use crate::space::Measure;
use crate::{BuildError, Control, Pass, Pool, Storage};

/// Parameters of a build.
#[derive(Clone, Debug)]
pub struct BuildSpec {
    /// The type of the values.
    pub value_type: ValueType,
    /// The metric. Under [`Metric::Cosine`] values arrive normalised.
    pub metric: Metric,
    /// Dimensions of every value.
    pub dims: u32,
    /// Neighbors per element and layer (pgvector's `m`), twice as many at layer 0: 2 to 100.
    pub m: u16,
    /// pgvector's `ef_construction`: 4 to 1000, at least `2 * m`. For the bulk engine it sets fan-out and number of candidates.
    pub ef_construction: u16,
    /// The client's estimate of the number of rows; a hint, not a limit.
    pub expected_rows: u64,
    /// Rows of equal value that share an element, at most: 1 to 10 (pgvector's `HNSW_HEAPTIDS`).
    pub rows_per_element: u8,
    /// Seed of the random numbers. The same seed and rows give the same graph, except with usearch.
    pub seed: u64,
}

impl BuildSpec {
    /// A build without an estimate of rows, with up to 10 rows per element as in pgvector, and seed 0.
    #[must_use]
    pub fn new(value_type: ValueType, metric: Metric, dims: u32, m: u16, ef_construction: u16) -> Self {
        let rows_per_element = HEAP_TIDS_PER_ELEMENT as u8;
        Self { value_type, metric, dims, m, ef_construction, expected_rows: 0, rows_per_element, seed: 0 }
    }
}

/// The engines that can build a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Our own: compares all pairs within overlapping groups (PiPNN, arXiv 2602.21247), by matrix products if the metric allows.
    #[default]
    Bulk,
    /// pgvector's insertion algorithm, in batches that do not depend on the number of threads.
    Insertion,
    /// Inserts elements with the `usearch` crate, on all threads of the pool.
    #[cfg(feature = "usearch")]
    Usearch,
}

impl EngineKind {
    /// The name on the command line and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Insertion => "insertion",
            #[cfg(feature = "usearch")]
            Self::Usearch => "usearch",
        }
    }
}

/// A batch of rows from the client.
#[derive(Clone, Copy, Debug)]
pub struct RowBatch<'a> {
    /// One heap TID per row.
    pub tids: &'a [HeapTid],
    /// The rows' values, concatenated, in the type's encoding without pgvector's header.
    pub values: &'a [u8],
    /// The length of each value in bytes, for `sparsevec`; else empty.
    pub lengths: &'a [u32],
}

/// A build under way.
pub trait Engine: Send {
    /// Takes the rows of all `batches`. If they have enough bytes together, the pool's threads check and copy them.
    ///
    /// # Errors
    /// [`BuildError::ValueLength`], [`BuildError::TrailingBytes`], [`BuildError::Value`], [`BuildError::HeapTid`],
    /// [`BuildError::TooManyElements`], [`BuildError::Cancelled`], [`BuildError::Memory`]; with a spool also
    /// [`BuildError::SpoolFull`] and [`BuildError::Spool`].
    fn add_all(&mut self, batches: &[RowBatch<'_>]) -> Result<(), BuildError>;

    /// Takes the rows of one batch.
    ///
    /// # Errors
    /// As [`Engine::add_all`].
    fn add(&mut self, batch: RowBatch<'_>) -> Result<(), BuildError> {
        self.add_all(&[batch])
    }

    /// Completes the graph after the last row.
    ///
    /// # Errors
    /// As [`Engine::add_all`], and [`BuildError::Internal`] for a defect of the engine.
    fn finish(self: Box<Self>) -> Result<Finished, BuildError>;
}

/// A build that is complete.
pub struct Finished {
    /// The graph.
    pub graph: Graph,
    /// The values of its elements.
    pub values: Arc<dyn ElementValues + Send>,
    /// All elements in page order: elements that link to each other are near each other.
    pub order: Vec<u32>,
    /// Counts and quality of the build.
    pub report: Report,
}

/// Counts and quality of a build, for logs and the client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Rows taken.
    pub rows: u64,
    /// Elements made from these rows; rows of equal value share one.
    pub elements: u64,
    /// Elements linked at layer 0 because they were unreachable from the entry point, or the entry point from them.
    pub relinked: u64,
    /// Elements still unreachable from the entry point at layer 0.
    pub unreachable: u64,
    /// Share of sampled elements that a search for their own value finds with `ef_search` 40, 0 to 1.
    pub self_recall: f32,
    /// Recall@10 with `ef_search` 40, 0 to 1; queries are rows and values between rows. If searches lose no more than chance, it is
    /// measured before missed elements are linked.
    pub recall: f32,
    /// Recall lost on the way from the entry point, for example to islands: recall@10 with `ef_search` 20 of searches that begin at the
    /// true nearest element, minus that of searches from the entry point; at least 0.
    pub lost: f32,
    /// The remedy applied because searches got lost.
    pub remedy: Remedy,
}

/// The remedy for a graph whose searches get lost on the way from the entry point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// None was needed, or none helped.
    #[default]
    None,
    /// Groups of elements that lie far apart were linked to each other.
    LinksAcross,
    /// Elements were searched for, and linked to elements on the search path.
    Navigation,
    /// The graph was built again by insertion, which gave a higher recall.
    Insertion,
}

impl Remedy {
    /// The name for logs and status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::LinksAcross => "links across",
            Self::Navigation => "navigation",
            Self::Insertion => "insertion",
        }
    }
}

/// Starts a build on `pool`, with the values in memory.
///
/// # Errors
/// [`BuildError::Parameter`], [`BuildError::Unsupported`] when pgvector has no such operator class, [`BuildError::Memory`].
pub fn start(
    kind: EngineKind,
    spec: BuildSpec,
    pool: Arc<Pool>,
    control: Control,
) -> Result<Box<dyn Engine>, BuildError> {
    start_in(Storage::default(), kind, spec, pool, control)
}

/// Starts the bulk engine without one pass, for benchmarks.
///
/// # Errors
/// As [`start`].
pub fn start_without(
    pass: Pass,
    spec: BuildSpec,
    pool: Arc<Pool>,
    control: Control,
) -> Result<Box<dyn Engine>, BuildError> {
    start(EngineKind::Bulk, spec, pool, control.without(pass))
}

/// [`start`], with the values in `storage`.
///
/// # Errors
/// As [`start`]. Later [`Engine::add`] may fail with [`BuildError::SpoolFull`] or [`BuildError::Spool`].
pub fn start_in(
    storage: Storage,
    kind: EngineKind,
    spec: BuildSpec,
    pool: Arc<Pool>,
    control: Control,
) -> Result<Box<dyn Engine>, BuildError> {
    let setup = setup(storage, kind, spec, pool, control)?;
    match kind {
        EngineKind::Bulk => Ok(Box::new(BulkEngine::start(setup))),
        EngineKind::Insertion => Ok(Box::new(InsertionEngine::start(setup))),
        #[cfg(feature = "usearch")]
        EngineKind::Usearch => Ok(Box::new(UsearchEngine::start(setup)?)),
    }
}

/// Checks the parameters, and prepares what all engines share.
fn setup(
    storage: Storage,
    kind: EngineKind,
    spec: BuildSpec,
    pool: Arc<Pool>,
    control: Control,
) -> Result<Setup, BuildError> {
    let within = |what, value: u16, min: u16, max: u16| match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(BuildError::Parameter { what, value: value.into(), min: min.into(), max: max.into() }),
    };
    within("m", spec.m, *M_RANGE.start(), *M_RANGE.end())?;
    within("ef_construction", spec.ef_construction, min_ef_construction(spec.m), *EF_CONSTRUCTION_RANGE.end())?;
    within("rows per element", spec.rows_per_element.into(), 1, HEAP_TIDS_PER_ELEMENT as u16)?;
    let measure =
        Measure::new(Elements::of(spec.value_type), spec.metric, spec.dims).ok_or(BuildError::Unsupported {
            engine: kind.name(),
            value_type: spec.value_type.name(),
            metric: spec.metric.name(),
        })?;
    Ok(Setup { spec, measure, pool, control, store: Arc::new(ValueStore::new(storage)) })
}
