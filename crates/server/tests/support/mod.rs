//! A builder in this process, and a client that sends exactly what a test wants.
#![allow(dead_code, unused_imports)] // each test file uses its part

mod builder;
mod client;
mod rows;

pub use builder::{Builder, eventually};
pub use client::{Built, Client, Stream};
pub use rows::{Rows, hello};
