//! Vectors in, finished graph out. No I/O but a spool file for values that do not fit into memory.
//!
//! [`start`] gives an [`Engine`], which takes rows while they arrive and ends in a [`Finished`] build.
//!
//! ```text
//! rows ─► elements ─► bulk: partition, leaves, candidates ─► selection ─┐
//!                 └─► insertion, where a trial finds more with it ──────┤
//!                                                                       ▼
//!         finished ◄─ page order ◄─ duplicates, reachability ◄─ guard: measure ⇄ navigate
//! ```

mod balance;
mod build;
mod bulk;
mod candidates;
mod codes;
mod complete;
mod copies;
mod directions;
mod draft;
mod error;
mod finish;
mod group;
mod guard;
mod input;
mod insertion;
mod matrix;
pub mod memory;
mod mutual;
mod navigate;
mod order;
mod pool;
mod progress;
mod reach;
mod round;
mod rows;
mod search;
mod select;
mod shares;
mod space;
mod spool;
mod trial;
mod usearch;
mod values;

pub use build::{BuildSpec, Engine, EngineKind, Finished, Remedy, Report, RowBatch, start, start_in};
pub use distance::{Level, Metric};
pub use error::BuildError;
pub use pool::Pool;
pub use progress::{Control, Phase, Progress};
pub use search::{Links, Searcher, search, search_with};
pub use spool::Storage;
