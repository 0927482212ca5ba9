//! `CREATE INDEX … USING hnsw … WITH (external = true)`: a pgvector index that a builder outside PostgreSQL builds.
//!
//! PostgreSQL gets the callbacks of the access method from pgvector's handler function. [`hook`] replaces three of them: those that build an
//! index ([`build`]), read its options ([`options`]), and name the phases of its build ([`progress`]). The rest of the access method remains
//! pgvector's, and the index is one of pgvector's.
//!
//! | module | question it answers |
//! |---|---|
//! | [`hook`] | how is an unmodified pgvector intercepted? |
//! | [`options`] | is this index to be built externally? |
//! | [`settings`] | where is the builder, and how do we talk to it? |
//! | [`column`] | which type, metric and dimensions? |
//! | [`type_info`] | which limits and functions has a type in this pgvector? |
//! | [`scan`], [`value`] | which rows, and what are their values? |
//! | [`resolve`], [`connect`], [`connection`], [`tls`], [`session`], [`wait`] | how are messages sent and received? |
//! | [`engage`] | which builder accepts the build, through queue and router? |
//! | [`rate_limit`] | how fast may bytes flow, and how long did a phase take? |
//! | [`connection_thread`], [`link`], [`wakeup`], [`waiter`], [`threads`] | how is the connection handled while PostgreSQL scans and writes? |
//! | [`writer`] | how do pages get into the index? |
//! | [`failure`], [`raised`] | how are our errors reported, and how do those of users' functions pass through unchanged? |
//! | [`build`] | in which order does all that happen? |
//! | [`functions`] | what do the SQL functions do? |
#![allow(unsafe_code)] // everything here talks to PostgreSQL

mod build;
mod column;
mod connect;
mod connection;
mod connection_thread;
mod engage;
mod failure;
mod functions;
mod hook;
mod link;
mod options;
mod progress;
mod raised;
mod rate_limit;
mod resolve;
mod scan;
mod session;
mod settings;
mod threads;
mod tls;
mod type_info;
mod value;
mod wait;
mod waiter;
mod wakeup;
mod writer;

use pgrx::prelude::*;

#[cfg(not(panic = "unwind"))]
compile_error!("PostgreSQL's errors travel as panics here: build with panic = \"unwind\"");

pgrx::pg_module_magic!();

/// Called by PostgreSQL when it loads the library.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    keep_backtraces_out_of_messages();
    // Settings first, because defining one may fail; hooks last, because they cannot be removed.
    settings::define();
    options::register();
    hook::install();
}

/// With RUST_BACKTRACE set, pgrx would put a backtrace into the DETAIL of every error that passes through us, even pgvector's.
fn keep_backtraces_out_of_messages() {
    const NAME: &str = "RUST_LIB_BACKTRACE";
    if std::env::var_os(NAME).is_none() {
        // SAFETY: PostgreSQL's processes have one thread when they load libraries.
        unsafe { std::env::set_var(NAME, "0") };
    }
}

/// `lantern_index.version()`
#[pg_extern(name = "lantern_index_version")]
fn lantern_index_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
