//! Turns rows into elements: checks each value, gives duplicates a common element, and stores values in memory or in a spool file.
//!
//! In: rows in batches. Out: [`TakenRows`], and a [`ValueStore`] that every other folder reads. The pool's threads check and copy values,
//! one thread looks for equal ones. Batches may arrive in any order: [`TakenRows::by_tid`] numbers elements as if they had arrived in the table's
//! order.

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
