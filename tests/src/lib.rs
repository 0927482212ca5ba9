//! The test harness: throw-away PostgreSQL clusters, builders, faulty networks, real vectors.
//!
//! `cargo xtask` uses it too, so it has few dependencies: only the feature `kubernetes` needs an async runtime.

mod account;
mod agree;
pub mod apt;
mod builder;
mod cluster;
mod control_plane;
mod copy;
mod cost;
mod diagnose;
mod documented;
mod exact;
mod federation;
mod form;
mod fvecs;
pub mod hard;
mod helm;
mod http;
mod inspect;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod npy;
mod once;
mod orphans;
mod page_cache;
mod pg_config;
mod pgvector;
mod phase;
mod processes;
mod proxy;
mod random;
mod recall;
mod scratch;
mod session;
mod skipped;
mod sql_case;
mod standby;
pub mod step;
mod strangers;
mod synthetic;
mod wait;
mod wire;
mod workspace;

pub use account::Account;
pub use agree::{READ_ALL, expect_each_once, expect_every_row, near_rows, search_rows};
pub use builder::{Builder, BuilderOptions, make_certificate};
pub use cluster::Cluster;
pub use control_plane::{control_plane, kubernetes_release};
pub use copy::{Column, copy_rows, fill_rows};
pub use cost::{Cost, cost};
pub use diagnose::{diagnose, make_diagnose};
pub use documented::{Documented, documented_commands, documented_sql};
pub use exact::exact_neighbors;
pub use federation::{federate, federate_ef_search};
pub use form::Form;
pub use helm::helm;
pub use http::get as http_get;
pub use inspect::inspect;
pub use npy::Vectors;
pub use page_cache::CachedFiles;
pub use pg_config::PgConfig;
pub use pgvector::{MINIMUM_PGVECTOR, default_version, may_damage_indexes, pgvector_version};
pub use phase::{Phase, wait_for_phase};
pub use processes::{
    children, connections_to, cores, cpu_seconds, is_running, open_files, open_sockets, proc_bytes, resident_bytes,
    thread_cpu_seconds, with_variable,
};
pub use protocol::{Metric, ValueType};
pub use proxy::{Direction, Proxy};
pub use random::Random;
pub use recall::{Recall, recall};
pub use scratch::Scratch;
pub use session::{Building, Rows, Session};
pub use skipped::{skipped, skipped_for_lack};
pub use sql_case::{compare_sql_case, sql_case_names};
pub use strangers::{Stranger, Strangers};
pub use synthetic::{synthetic, synthetic_part};
pub use wait::{beside, wait_for, within};
pub use wire::{Notice, SqlError};
pub use workspace::{binary, data_set, root};
