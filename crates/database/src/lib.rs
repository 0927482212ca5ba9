//! Sessions with PostgreSQL, with connections as libpq makes them.
//!
//! | module | question it answers |
//! |---|---|
//! | [`dsn`] | which server and database does a connection string denote? |
//! | [`tls`], [`connect`] | how does a session begin, and what can it run? |

mod connect;
pub mod dsn;
mod error;
mod tls;

pub use connect::Database;
pub use dsn::Dsn;
pub use error::Error;
