//! Lantern's protocol version 1, for its clients, the pgvector forks `…-lanterncloud`.
//!
//! Such a client reads nothing while it sends rows, reads no messages within the file, and takes the end of the stream for the end of the
//! file. So a session that ends early sends its reason only where the client reads it, and otherwise resets the connection, which the
//! client reports as an error at any point.

mod answer;
mod file;
mod normalise;
mod order;
mod receive;
mod send;
mod session;

pub(crate) use file::send;
pub(crate) use order::Lantern;
pub(crate) use session::serve;
