//! Sessions with PostgreSQL, connected as libpq would.
//!
//! | module | question it answers |
//! |---|---|
//! | [`dsn`] | which server and database does a connection string mean to libpq? |
//! | [`tls`], [`connect`] | how does a session begin, and what can be asked in it? |

mod connect;
pub mod dsn;
mod error;
mod tls;

pub use connect::Database;
pub use dsn::Dsn;
pub use error::Error;
