//! The engines: each takes rows, drafts the graph by its own algorithm, and ends in the same completion ([`finish`]).
//!
//! [`bulk`] runs the pipeline pictured in `lib.rs`; [`insertion`] is pgvector's algorithm; [`usearch`] wraps the crate of that name. Where
//! the metric does not decide between the first two, a [`trial`] on a sample does.

mod bulk;
mod finish;
mod insertion;
mod intake;
#[cfg(test)]
mod tests;
mod trial;
#[cfg(feature = "usearch")]
mod usearch;

pub(crate) use bulk::BulkEngine;
pub(crate) use insertion::InsertionEngine;
pub(crate) use intake::Setup;
#[cfg(feature = "usearch")]
pub(crate) use usearch::UsearchEngine;
