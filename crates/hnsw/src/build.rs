use std::sync::Arc;

use distance::{Elements, Metric};
use graph::{ElementValues, Graph, HEAP_TIDS_PER_ELEMENT, HeapTid, ValueType};
use pgvector::{EF_CONSTRUCTION_RANGE, M_RANGE};

#[cfg(feature = "usearch")]
use crate::engines::UsearchEngine;
use crate::engines::{BulkEngine, InsertionEngine, Setup};
use crate::input::ValueStore;
use crate::space::Measure;
use crate::{BuildError, Control, Pass, Pool, Storage};

/// What is to be built.
#[derive(Clone, Debug)]
pub struct BuildSpec {
    /// The type of the values.
    pub value_type: ValueType,
    /// The metric. Under [`Metric::Cosine`] values arrive normalised.
    pub metric: Metric,
    /// Dimensions of every value.
    pub dims: u32,
    /// Neighbors per element and layer, twice as many at layer 0: 2 to 100.
    pub m: u16,
    /// Candidates considered when an element's neighbors are chosen: 4 to 1000, at least `2 * m`.
    pub ef_construction: u16,
    /// The client's estimate of the number of rows; a hint, not a limit.
    pub expected_rows: u64,
    /// The most rows of equal values that share an element: 1 to 10. pgvector's pages have room for 10.
    pub rows_per_element: u8,
    /// Seed of the random numbers: the same seed and rows give the same graph, except by usearch.
    pub seed: u64,
}

/// The engines that can build a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Our own: compares elements in overlapping groups (PiPNN, arXiv 2602.21247), by tiles of products if the metric allows.
    #[default]
    Bulk,
    /// Inserts elements one by one, as in pgvector.
    Insertion,
    /// Inserts elements one by one by the `usearch` crate, on all cores.
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
    /// The length of each value in bytes, for types of varying length; else empty.
    pub lengths: &'a [u32],
}

/// A build under way.
pub trait Engine: Send {
    /// Takes rows; may work on them before it returns.
    ///
    /// # Errors
    /// A value of the wrong length or with a number that is not finite; cancellation; no memory.
    fn add(&mut self, rows: RowBatch<'_>) -> Result<(), BuildError>;

    /// Completes the graph after the last row.
    ///
    /// # Errors
    /// Cancellation, no memory, or a defect of the engine.
    fn finish(self: Box<Self>) -> Result<Finished, BuildError>;
}

/// A build that is complete.
pub struct Finished {
    /// The graph.
    pub graph: Graph,
    /// The values of its elements.
    pub values: Arc<dyn ElementValues + Send>,
    /// All elements in the order for pages: linked elements near each other.
    pub order: Vec<u32>,
    /// Counts and measures of the build.
    pub report: Report,
}

/// What a build did, for logs and the client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Rows taken.
    pub rows: u64,
    /// Elements made from them: rows with equal values share one.
    pub elements: u64,
    /// Elements that were unreachable from the entry point and have been linked.
    pub relinked: u64,
    /// Elements that are still unreachable.
    pub unreachable: u64,
    /// Share of a sample of elements that a search with `ef_search` 40 for their own value finds, 0 to 1.
    pub self_recall: f32,
    /// Share of the ten true neighbors that searches with `ef_search` 40 find, over rows and values between them, 0 to 1.
    pub recall: f32,
    /// How much higher the recall at `ef_search` 20 is if searches begin at the true nearest element: the loss by islands.
    pub lost: f32,
    /// The remedy for searches that got lost.
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
    /// Elements were searched for, and linked to elements on the way.
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
    let setup = Setup { left_out: Some(pass), ..setup(Storage::default(), EngineKind::Bulk, spec, pool, control)? };
    Ok(Box::new(BulkEngine::start(setup)))
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
    within("ef_construction", spec.ef_construction, 2 * spec.m, *EF_CONSTRUCTION_RANGE.end())?;
    within("rows per element", spec.rows_per_element.into(), 1, HEAP_TIDS_PER_ELEMENT as u16)?;
    let measure =
        Measure::new(Elements::of(spec.value_type), spec.metric, spec.dims).ok_or(BuildError::Unsupported {
            engine: kind.name(),
            value_type: spec.value_type.name(),
            metric: spec.metric.name(),
        })?;
    Ok(Setup { spec, measure, pool, control, store: Arc::new(ValueStore::new(storage)), left_out: None })
}
