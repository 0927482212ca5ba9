//! The engines: each takes rows, makes a draft of the graph its own way, and ends in the same completion ([`finish`]).
//!
//! [`bulk`] is the picture of the crate as code; [`insertion`] is pgvector's algorithm; [`usearch`] is the crate of that name. A
//! [`trial`] on a sample decides between the first two where the metric does not.

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
