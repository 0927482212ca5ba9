//! The test harness: throw-away PostgreSQL clusters, builders, faulty networks, real vectors.
//!
//! `cargo xtask` is made of the same parts, so few crates are used: nothing here needs an async runtime.

mod account;
mod builder;
mod cluster;
mod copy;
mod exact;
mod half;
mod http;
mod inspect;
mod npy;
mod pg_config;
mod pgvector;
mod processes;
mod proxy;
mod recall;
mod scratch;
mod session;
mod wait;
mod wire;
mod workspace;

pub use builder::{Builder, BuilderOptions};
pub use cluster::Cluster;
pub use copy::{Column, copy_rows};
pub use exact::{Metric, exact_neighbors};
pub use half::{from_half, to_half};
pub use inspect::inspect;
pub use npy::Vectors;
pub use pg_config::PgConfig;
pub use pgvector::{MINIMUM_PGVECTOR, pgvector_version};
pub use processes::{cpu_seconds, resident_bytes};
pub use proxy::{Direction, Proxy};
pub use recall::{Recall, load_queries, recall};
pub use session::{Rows, Session};
pub use wait::{wait_for, within};
pub use wire::{Notice, SqlError};
pub use workspace::{binary, data_set, root};
