//! Settings that pgvector discards when it is loaded.

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::prelude::*;

use super::{DEFAULT_HOST, Settings};

/// Whether settings of the configuration file may be lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// From PostgreSQL 15 on, pgvector discards undefined settings of its prefix when it is loaded. So our settings in
/// postgresql.conf are lost if pgvector was loaded first. Warns while libraries are preloaded; later [`warn_before_defaults_are_used`] does.
pub(super) fn detect() {
    if cfg!(any(feature = "pg13", feature = "pg14")) {
        return;
    }
    // SAFETY: reads PostgreSQL's state; the name is static.
    let (pgvector_is_loaded, preloading) = unsafe {
        let name = c"hnsw.ef_search".as_ptr();
        let known = !pg_sys::GetConfigOption(name, true, false).is_null();
        let placeholder = pg_sys::GetConfigOptionFlags(name, true) & pg_sys::GUC_CUSTOM_PLACEHOLDER as i32 != 0;
        (known && !placeholder, pg_sys::process_shared_preload_libraries_in_progress)
    };
    LOST.store(pgvector_is_loaded, Ordering::Relaxed);
    if pgvector_is_loaded && preloading {
        warn_of_loss();
    }
}

/// Warns before rows go to the default address, unverified, because settings may have been lost.
pub(super) fn warn_before_defaults_are_used(settings: &Settings) {
    let defaults = settings.host == DEFAULT_HOST && settings.tls.as_ref().is_some_and(|tls| tls.root_cert.is_none());
    if defaults && LOST.swap(false, Ordering::Relaxed) {
        warn_of_loss();
    }
}

fn warn_of_loss() {
    ereport!(
        PgLogLevel::WARNING,
        PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR,
        "settings hnsw.external_index_* of the configuration file, if any, are ignored",
        "pgvector was loaded before lantern_index and removed them. \
         Put \"lantern_index\" before \"vector\" in shared_preload_libraries, or leave \"vector\" out."
    );
}
