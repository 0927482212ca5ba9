//! A daemon as a user runs it, and the client of the server's tests.
#![allow(dead_code, unused_imports)] // each test file uses its part

#[path = "../../../server/tests/support/client.rs"]
mod client;
mod daemon;
#[path = "../../../server/tests/support/http.rs"]
mod http;
mod made;
mod points;
#[path = "../../../server/tests/support/rows.rs"]
mod rows;

pub use client::{Client, connect};
pub use daemon::{Daemon, command, run, said};
pub use http::{get, metric};
pub use made::Made;
pub use points::{encode, points};
pub use rows::{Rows, hello};
