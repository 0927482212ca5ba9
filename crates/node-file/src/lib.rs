//! A finished graph as the file of nodes that Lantern's clients turn into an index.
//!
//! usearch's format of that time: a head of 136 bytes, then the nodes, each with its label, level, neighbor lists and value. The
//! clients (the pgvector forks `…-lanterncloud`) copy what they find into pgvector's tuples with few questions asked, so a file has
//! to suit them in three ways that the format does not ask for: see [`NodeFile`].

mod arrange;
mod error;
mod file;
mod head;
mod window;

pub use error::NodeFileError;
pub use file::{Content, NodeFile};
