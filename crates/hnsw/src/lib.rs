//! Vectors in, finished graph out. Never does I/O.
//!
//! [`start`] gives an [`Engine`], which takes rows while they arrive and ends in a [`Finished`] build.

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
mod input;
mod matrix;
pub mod memory;
mod mutual;
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
mod usearch;
mod values;

pub use build::{BuildSpec, Engine, EngineKind, Finished, Report, RowBatch, start, start_in};
pub use distance::{Level, Metric};
pub use error::BuildError;
pub use pool::Pool;
pub use progress::{Control, Phase, Progress};
pub use search::{Links, search, search_with};
pub use spool::Storage;
