//! Rows become elements: each value is checked, rows of equal values share an element, and values are stored in memory or in a spool file.
//!
//! In: rows in batches. Out: [`TakenRows`], and a [`ValueStore`] that every other folder reads. One thread, about 2.5 µs a row. Batches
//! may come in any order: [`TakenRows::by_tid`] numbers elements as if they had come in that of the table.

mod by_tid;
mod check;
mod rows;
mod spool;
mod values;

pub(crate) use rows::{Rows, TakenRows};
pub use spool::Storage;
#[cfg(test)]
pub(crate) use values::Chunk;
pub(crate) use values::{Bytes, CHUNK, ValueStore};
