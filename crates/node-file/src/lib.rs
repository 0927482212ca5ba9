//! A finished graph as the file of nodes that Lantern's clients turn into an index.
//!
//! The format is that of usearch 2.8.14: a head of 136 bytes, then the nodes, each with its label, level, neighbor lists and
//! value. The clients (the pgvector forks `…-lanterncloud`) copy nodes into pgvector's tuples with little validation, so a file
//! must meet three conditions beyond the format: see [`NodeFile`].

mod arrange;
mod error;
mod file;
mod head;
mod window;

pub use error::NodeFileError;
pub use file::{Content, NodeFile};
