//! Intercepts an unmodified pgvector.
//!
//! PostgreSQL's function manager lets loaded libraries intercept function calls (`needs_fmgr_hook`, `fmgr_hook`). When the function is
//! pgvector's access method handler, the hook calls ours instead, which calls pgvector's and replaces three callbacks in a copy of its
//! result.

use std::cell::Cell;
use std::ffi::CStr;
use std::panic::AssertUnwindSafe;

use pgrx::pg_sys::FmgrHookEventType::{FHET_START, Type as Event};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use crate::{build, options, progress};

/// pgvector's callbacks, which ours call.
#[derive(Clone, Copy)]
pub(crate) struct Original {
    pub(crate) build: unsafe extern "C-unwind" fn(
        pg_sys::Relation,
        pg_sys::Relation,
        *mut pg_sys::IndexInfo,
    ) -> *mut pg_sys::IndexBuildResult,
    pub(crate) options: unsafe extern "C-unwind" fn(pg_sys::Datum, bool) -> *mut pg_sys::bytea,
    pub(crate) phase_name: pg_sys::ambuildphasename_function,
}

type Handler = unsafe extern "C-unwind" fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum;

// A backend has one thread; the cells are the safe form of a C static.
thread_local! {
    static ORIGINAL: Cell<Option<Original>> = const { Cell::new(None) };
    static HANDLER: Cell<Option<Handler>> = const { Cell::new(None) };
    static NEXT_NEEDS_HOOK: Cell<pg_sys::needs_fmgr_hook_type> = const { Cell::new(None) };
    static NEXT_HOOK: Cell<pg_sys::fmgr_hook_type> = const { Cell::new(None) };
}

/// pgvector's callbacks. They are known since its handler was called, which precedes any call of ours.
pub(crate) fn original() -> Original {
    ORIGINAL.get().expect("pgvector's handler was called")
}

/// Installs the hooks, chained to those of other libraries.
pub(crate) fn install() {
    // SAFETY: PostgreSQL's hook variables are read and written by the only thread of the process.
    unsafe {
        NEXT_NEEDS_HOOK.set(pg_sys::needs_fmgr_hook);
        NEXT_HOOK.set(pg_sys::fmgr_hook);
        pg_sys::needs_fmgr_hook = Some(needs_hook);
        pg_sys::fmgr_hook = Some(hook);
        if pg_sys::IsTransactionState() {
            // The session may have used an hnsw index already: make it call the handler again.
            pg_sys::InvalidateSystemCaches();
            // And again at the end of the transaction, for indexes that are open now.
            pg_sys::RegisterXactCallback(Some(at_end_of_transaction), std::ptr::null_mut());
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_end_of_transaction(event: pg_sys::XactEvent::Type, _private: *mut std::ffi::c_void) {
    thread_local! {
        static DONE: Cell<bool> = const { Cell::new(false) };
    }
    if event == pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT && !DONE.replace(true) {
        // SAFETY: in a transaction, as the event says.
        unsafe { pg_sys::InvalidateSystemCaches() };
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn needs_hook(function: pg_sys::Oid) -> bool {
    // SAFETY: the hook that was there before is called as PostgreSQL would have.
    let next = NEXT_NEEDS_HOOK.get().is_some_and(|next| unsafe { pg_guard_ffi_boundary(|| next(function)) });
    next || is_hnsw_handler(function)
}

#[pg_guard]
unsafe extern "C-unwind" fn hook(event: Event, flinfo: *mut pg_sys::FmgrInfo, private: *mut pg_sys::Datum) {
    // SAFETY: fmgr passes the function that it is about to call, which may be one that only another library's hook asked for.
    unsafe {
        if event == FHET_START
            && is_hnsw_handler((*flinfo).fn_oid)
            && let Some(address) = (*flinfo).fn_addr
            && address as usize != handler as *const () as usize
        {
            HANDLER.set(Some(address));
            (*flinfo).fn_addr = Some(handler);
        }
        if let Some(next) = NEXT_HOOK.get() {
            pg_guard_ffi_boundary(|| next(event, flinfo, private));
        }
    }
}

/// Called in place of `hnswhandler`.
#[pg_guard]
unsafe extern "C-unwind" fn handler(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    let pgvector = HANDLER.get().expect("set when this function was put in place");
    // SAFETY: this is the call that fmgr was about to make; the answer is a structure that the handler allocated for its caller.
    unsafe {
        let answer = pg_guard_ffi_boundary(|| pgvector(call));
        let theirs = answer.cast_mut_ptr::<pg_sys::IndexAmRoutine>();
        let (Some(build), Some(options)) = ((*theirs).ambuild, (*theirs).amoptions) else { return answer };
        ORIGINAL.set(Some(Original { build, options, phase_name: (*theirs).ambuildphasename }));
        // A copy, because pgvector's may be a constant, as PostgreSQL 19 requires.
        let routine = pg_sys::palloc(size_of::<pg_sys::IndexAmRoutine>()).cast::<pg_sys::IndexAmRoutine>();
        routine.copy_from_nonoverlapping(theirs, 1);
        (*routine).ambuild = Some(build::ambuild);
        (*routine).amoptions = Some(options::amoptions);
        (*routine).ambuildphasename = Some(progress::ambuildphasename);
        routine.into()
    }
}

/// Whether a function is pgvector's handler, by its catalog entry. Nothing is cached, so DROP EXTENSION and other functions of
/// the same name do no harm. The oid or the result type rules out nearly all other functions.
pub(crate) fn is_hnsw_handler(function: pg_sys::Oid) -> bool {
    // SAFETY: reads the catalog entry that fmgr itself has just read, in a transaction.
    unsafe {
        // An extension made before the server's first start, in single-user mode, has oids of the range that initdb uses.
        function.to_u32() >= pg_sys::FirstGenbkiObjectId
            && pg_sys::IsTransactionState()
            && symbol_of(function, |form| form.prorettype == pg_sys::INDEX_AM_HANDLEROID) == Some("hnswhandler".into())
    }
}

/// The symbol of a function in pgvector's library; `None` for other functions.
///
/// # Safety
/// Must be called in a transaction.
pub(crate) unsafe fn symbol(function: pg_sys::Oid) -> Option<String> {
    // SAFETY: as promised by the caller.
    unsafe { symbol_of(function, |_| true) }
}

/// [`symbol`] of a function whose catalog entry is `wanted`.
///
/// # Safety
/// Must be called in a transaction.
unsafe fn symbol_of(function: pg_sys::Oid, wanted: impl Fn(&pg_sys::FormData_pg_proc) -> bool) -> Option<String> {
    // SAFETY: in a transaction, reads a catalog entry, which lives until it is released.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let entry = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function));
        if entry.is_null() {
            return None;
        }
        let form = pg_sys::GETSTRUCT(entry).cast::<pg_sys::FormData_pg_proc>();
        let library = wanted(&*form).then(|| text(cache, entry, pg_sys::Anum_pg_proc_probin)).flatten();
        let is_pgvector =
            library.is_some_and(|library| matches!(library.rsplit('/').next(), Some("vector" | "vector.so")));
        let symbol = is_pgvector.then(|| text(cache, entry, pg_sys::Anum_pg_proc_prosrc)).flatten();
        pg_sys::ReleaseSysCache(entry);
        symbol
    }
}

/// A text column of a catalog entry.
///
/// # Safety
/// `entry` must be a live entry of the cache.
unsafe fn text(cache: i32, entry: pg_sys::HeapTuple, column: u32) -> Option<String> {
    let mut null = false;
    // SAFETY: as promised by the caller; the column is one of pg_proc's text columns.
    unsafe {
        let datum = pg_sys::SysCacheGetAttr(cache, entry, column as pg_sys::AttrNumber, &raw mut null);
        String::from_datum(datum, null)
    }
}

/// Copies a C string of PostgreSQL, in the encoding of the database.
///
/// # Safety
/// `string` must be null or a live C string.
pub(crate) unsafe fn owned(string: *const std::ffi::c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: as promised by the caller.
    let text = unsafe { CStr::from_ptr(string) };
    if text.to_bytes().is_ascii() {
        return Some(text.to_string_lossy().into_owned());
    }
    let convert = || {
        // SAFETY: reads the text; what is allocated is freed with the statement.
        let utf8 =
            unsafe { pg_sys::pg_server_to_any(string, text.count_bytes() as i32, pg_sys::pg_enc::PG_UTF8 as i32) };
        // SAFETY: PostgreSQL returns the text itself or a new C string.
        unsafe { CStr::from_ptr(utf8) }.to_string_lossy().into_owned()
    };
    // Where no conversion is possible, as from SQL_ASCII, U+FFFD replaces invalid UTF-8.
    Some(PgTryBuilder::new(AssertUnwindSafe(convert)).catch_others(|_| text.to_string_lossy().into_owned()).execute())
}
