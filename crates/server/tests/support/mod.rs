//! A builder in this process, and a client that sends exactly what a test wants.
#![allow(dead_code, unused_imports)] // each test file uses its part

mod builder;
mod client;
mod http;
mod namespace;
mod rows;
mod tls;

pub use builder::{Builder, eventually};
pub use client::{Built, Client, Stream, connect};
pub use http::{get, metric};
pub use namespace::run_in_namespace;
pub use rows::{Rows, hello};
pub use tls::{Pair, encrypted};
