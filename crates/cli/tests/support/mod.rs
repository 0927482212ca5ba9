//! A daemon as a user runs it, and the client of the server's tests.
#![allow(dead_code, unused_imports)] // each test file uses its part

#[path = "../../../server/tests/support/client.rs"]
mod client;
mod daemon;
mod made;
mod points;
#[path = "../../../server/tests/support/rows.rs"]
mod rows;

pub use client::Client;
pub use daemon::{Daemon, command};
pub use made::Made;
pub use points::{encode, points};
pub use rows::{Rows, hello};
