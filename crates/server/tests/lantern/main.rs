//! Simulated Lantern clients are served, and survive.

mod client;
mod hostile;
mod index;
mod indexes;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod table;
