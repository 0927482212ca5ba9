//! Builds HNSW graphs from vectors. No I/O except a spool file for values that do not fit into memory.
//!
//! [`start`] returns an [`Engine`], which takes rows while they arrive and ends in a [`Finished`] build. The picture follows the data
//! through the folders; each `mod.rs` says what goes in and what comes out.
//!
//! ```text
//!   rows                                                          Finished: graph, page order, report
//!    │                                                                              ▲
//!    ▼                                                                              │
//!  input      check, duplicates, values in memory or in a spool file               order
//!    │ elements                                                                     ▲
//!    ▼                                                                              │
//!  space      int8 codes, principal components, augmentation for inner product      │
//!    │                                                                              │
//!    ▼                                                                              │
//!  partition  plan, pivots, split, leaf (all pairs), refine, more ─► candidates     │
//!    │                                                             │                │
//!    ▼                                                             ▼                │
//!  select     diversity rule, reverse edges, in-degree, outward ► draft             │
//!    │                                                             │                │
//!    ▼                                                             ▼                │
//!  repair     guard (searches), across, navigate, missed, duplicates, reach ────────┘
//!
//!  engines    bulk: the pipeline above; insertion and usearch: drafts by other algorithms
//!  exact      exact neighbors of a sample, to measure candidates and graphs
//!  tasks      parallel work of all passes: sections of tasks, which a benchmark can record
//! ```

mod build;
mod candidates;
mod draft;
mod engines;
mod error;
mod exact;
mod input;
pub mod memory;
mod order;
mod partition;
mod pass;
mod pool;
mod progress;
mod random;
mod repair;
mod search;
mod select;
mod space;
mod tasks;
#[cfg(test)]
mod testing;

pub use build::{BuildSpec, Engine, EngineKind, Finished, Remedy, Report, RowBatch, start, start_in, start_without};
pub use distance::{Level, Metric};
pub use error::BuildError;
pub use input::Storage;
pub use pass::Pass;
pub use pool::Pool;
pub use progress::{Control, Phase, Progress};
pub use search::{Distances, Links, Searcher};
pub use tasks::{Recorder, Step};
