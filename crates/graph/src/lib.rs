//! What is a finished HNSW graph? The result of a build, from which index pages are made.
//!
//! It is immutable and checked on construction; nothing here builds, searches or serialises.

mod error;
mod finished;
mod heap_tid;
mod value;

pub use error::GraphError;
pub use finished::{Graph, GraphParts, NO_NEIGHBOR};
pub use heap_tid::{HeapTid, HeapTids};
pub use pgvector::{HEAP_TIDS_PER_ELEMENT, ValueType, max_level};
pub use value::ElementValues;
