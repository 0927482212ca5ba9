//! Vectors in, finished graph out. No I/O but a spool file for values that do not fit into memory.
//!
//! [`start`] gives an [`Engine`], which takes rows while they arrive and ends in a [`Finished`] build. The folders stand in the order in which data
//! moves; each `mod.rs` says what comes in, what goes out and what it costs.
//!
//! ```text
//!   rows                                                          Finished: graph, page order, report
//!    │                                                                              ▲
//!    ▼                                                                              │
//!  input      check, duplicates, values in memory or in a spool file               order
//!    │ elements                                                                     ▲
//!    ▼                                                                              │
//!  space      metric; int8 codes, principal components, extra coordinate for inner product  │
//!    │                                                                              │
//!    ▼                                                                              │
//!  partition  plan, pivots, split, leaf (all pairs), refine ─► candidates           │
//!    │                                                             │                │
//!    ▼                                                             ▼                │
//!  select     diversity rule, mutual choice ────────────────────► draft             │
//!    │                                                             │                │
//!    ▼                                                             ▼                │
//!  repair     guard (measures by searches), navigate, duplicates, reach ────────────┘
//!
//!  engines    bulk: this picture as code; insertion and usearch: a draft by other ways
//! ```

mod build;
mod candidates;
mod draft;
mod engines;
mod error;
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
#[cfg(test)]
mod testing;

pub use build::{BuildSpec, Engine, EngineKind, Finished, Remedy, Report, RowBatch, start, start_in, start_without};
pub use distance::{Level, Metric};
pub use error::BuildError;
pub use input::Storage;
pub use pass::Pass;
pub use pool::Pool;
pub use progress::{Control, Phase, Progress};
pub use search::{Links, Searcher, search, search_with};
