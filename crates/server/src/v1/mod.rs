//! Lantern's protocol version 1, for the clients that speak it: the pgvector forks `…-lanterncloud`.
//!
//! Such a client cannot be told anything while it sends rows or reads the file, and takes an end of the stream for the end of
//! the file. So a session that ends before its time says why only where the client looks for it, and otherwise resets the
//! connection, which is an error for the client wherever it is.

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
