//! Lantern's protocol version 1, for its clients, the pgvector forks `…-lanterncloud`.
//!
//! Such a client reads no messages while it sends rows or reads the file, and takes an end of the stream for the end of the
//! file. So a session that ends early sends its reason only where the client reads it, and otherwise resets the connection,
//! which is an error for the client at any point.

mod answer;
mod file;
mod order;
mod receive;
mod send;
mod session;
mod unit;

pub(crate) use file::send;
pub(crate) use order::Lantern;
pub(crate) use session::serve;
