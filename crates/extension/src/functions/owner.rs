//! Runs the table owner's expressions with the owner's rights.

use std::cell::Cell;

use pgrx::prelude::*;

use crate::raised;

thread_local! {
    static RESTRICTED: Cell<bool> = const { Cell::new(false) };
}

/// Adds a hint to an error, kept by [`raised`], of an expression that did not find an object: builds use the session's `search_path`
/// up to PostgreSQL 16, and a restricted one, as here, in later releases.
pub(super) fn hint_at_search_path() {
    if RESTRICTED.replace(false) && cfg!(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16")) {
        raised::hint_at_missing(
            "The expressions of the index ran with search_path set to \"pg_catalog, pg_temp\". Qualify the names in them, or let the owner of the table call the function.",
        );
    }
}

/// Runs `work` with the rights of the table's owner, as PostgreSQL does for an index's expressions. So the owner's functions cannot
/// use the caller's rights, and the caller's `search_path` cannot change the meaning of the owner's functions.
///
/// # Safety
/// `table` must be open.
pub(super) unsafe fn as_owner<T>(table: pg_sys::Relation, work: impl FnOnce() -> T) -> T {
    // SAFETY: an error ends the (sub)transaction, which restores user and settings; otherwise they are restored here.
    unsafe {
        RESTRICTED.set(false);
        let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let owner = (*(*table).rd_rel).relowner;
        if owner == user {
            return work();
        }
        let restricted = context | pg_sys::SECURITY_RESTRICTED_OPERATION as i32;
        pg_sys::SetUserIdAndSecContext(owner, restricted);
        let level = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        RESTRICTED.set(true);
        let result = work();
        RESTRICTED.set(false);
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}
