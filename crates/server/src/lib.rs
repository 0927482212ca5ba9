//! The builder daemon: receives rows from PostgreSQL backends, builds their index and streams its pages back.
//!
//! Each connection has an async task for its I/O; each build has a thread that drives the engine, which has its own thread pool.

mod admission;
mod advising;
mod checking;
mod config;
mod greet;
mod hello;
mod job;
mod lifecycle;
mod meter;
mod paging;
mod progress;
mod reading;
mod rows;
mod server;
mod session;
mod session_error;
mod sizing;
mod ticket;
mod v1;
mod writing;

pub use admission::machine_for;
pub use config::Config;
pub use server::Server;
pub use sizing::need_of;
