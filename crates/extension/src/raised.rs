//! Lets errors of PostgreSQL and of users' functions pass through us unchanged.
//!
//! pgrx turns an error into a panic, so that Rust unwinds, and then raises a new error. It has the code (if pgrx knows it),
//! message, detail and hint of the original, but neither its context nor the names of schema, table, column, data type and
//! constraint. So the original error is kept, and raised again once all of Rust's frames are gone.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;

use pgrx::PgMemoryContexts;
use pgrx::pg_sys::AsPgCStr;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use crate::hook;

unsafe extern "C-unwind" {
    /// Of pgrx: calls `code` with a place to jump back to. Returns its result or, after a jump, another number than 0.
    fn call_closure_with_sigsetjmp(
        save_mask: c_int,
        state: *mut c_void,
        code: unsafe extern "C-unwind" fn(place: *mut c_void, state: *mut c_void) -> c_int,
    ) -> c_int;

    /// PostgreSQL's own, without the guard that `pg_sys` adds.
    #[link_name = "ReThrowError"]
    fn rethrow(error: *mut pg_sys::ErrorData) -> !;
}

thread_local! {
    /// The last error that [`keep_error`] saw.
    static LAST: Cell<*mut pg_sys::ErrorData> = const { Cell::new(null_mut()) };
    /// The error to raise once all of Rust's frames are gone.
    static KEPT: Cell<*mut pg_sys::ErrorData> = const { Cell::new(null_mut()) };
}

/// A call on its way through C.
struct Call<F, T> {
    function: Option<F>,
    result: MaybeUninit<T>,
}

/// Calls PostgreSQL where it may run users' functions. An error becomes a panic, as in any guarded call, and the original is kept.
///
/// # Safety
/// As for `pg_guard_ffi_boundary`: `function` must be a plain call that is not guarded itself.
#[allow(unreachable_code)] // not every release declares that the last call does not return
pub(crate) unsafe fn keep_error<T>(function: impl FnOnce() -> T) -> T {
    unsafe extern "C-unwind" fn run<F: FnOnce() -> T, T>(place: *mut c_void, state: *mut c_void) -> c_int {
        // SAFETY: `state` is the call below, and PostgreSQL jumps to `place` only while that waits for this function.
        unsafe {
            pg_sys::PG_exception_stack = place.cast();
            let call = &mut *state.cast::<Call<F, T>>();
            if let Some(function) = call.function.take() {
                call.result.write(function());
            }
        }
        0
    }
    fn start<F: FnOnce() -> T, T>(call: &mut Call<F, T>) -> c_int {
        // SAFETY: `run` gets the call that it was made for.
        unsafe { call_closure_with_sigsetjmp(0, (&raw mut *call).cast(), run::<F, T>) }
    }
    // SAFETY: as in PostgreSQL's PG_TRY, what is changed for the call is restored after it, whether it returns or jumps.
    unsafe {
        let mut call = Call { function: Some(function), result: MaybeUninit::uninit() };
        let (context, place, callbacks) =
            (pg_sys::CurrentMemoryContext, pg_sys::PG_exception_stack, pg_sys::error_context_stack);
        let jumped = start(&mut call) != 0;
        pg_sys::PG_exception_stack = place;
        pg_sys::error_context_stack = callbacks;
        if !jumped {
            return call.result.assume_init();
        }
        // The copy lives until it is raised again or, if the error is handled, until the transaction ends.
        pg_sys::CurrentMemoryContext = pg_sys::CurTransactionContext;
        let error = pg_sys::CopyErrorData();
        pg_sys::CurrentMemoryContext = context;
        pg_sys::FlushErrorState();
        LAST.set(error);
        pg_sys::ReThrowError(error);
        unreachable!("an error does not return")
    }
}

/// Runs `work`. `None` if it ended with a kept error, which the caller raises by [`raise_kept`].
pub(crate) fn until_raised<T>(work: impl FnOnce() -> T) -> Option<T> {
    LAST.set(null_mut());
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(panic) => {
            let error = LAST.replace(null_mut());
            if !is_of(error, panic.as_ref()) {
                resume_unwind(panic);
            }
            KEPT.set(error);
            None
        }
    }
}

/// Adds to the hint of the error that was kept, if it is of class 42, which has the errors about missing functions, tables, columns and types.
pub(crate) fn hint_at_missing(hint: &str) {
    /// Class 42, syntax error or access rule violation, as PostgreSQL packs it.
    const CLASS: c_int = (b'4' - b'0') as c_int | ((b'2' - b'0') as c_int) << 6;
    // SAFETY: null, or the copy of an error that is raised next.
    let Some(error) = (unsafe { KEPT.get().as_mut() }) else { return };
    if error.sqlerrcode & 0xfff == CLASS {
        // SAFETY: the hint is null or a C string; the new one lives as long as the error.
        unsafe {
            let before = hook::owned(error.hint).unwrap_or_default();
            let hint = format!("{before} {hint}");
            error.hint = PgMemoryContexts::CurTransactionContext.switch_to(|_| hint.trim_start().as_pg_cstr());
        }
    }
}

/// Raises the error that was kept, if there is one.
///
/// # Safety
/// No frame between this call and PostgreSQL may have anything to drop.
pub(crate) unsafe fn raise_kept() {
    let error = KEPT.replace(null_mut());
    if !error.is_null() {
        // SAFETY: the error was copied by PostgreSQL; the caller promises that it may jump.
        unsafe { rethrow(error) }
    }
}

/// Whether the panic comes from this error (which may be null), and not from a later one.
fn is_of(error: *mut pg_sys::ErrorData, panic: &(dyn Any + Send)) -> bool {
    let Some(CaughtError::PostgresError(report)) = panic.downcast_ref::<CaughtError>() else { return false };
    // SAFETY: null, or an error that was copied by PostgreSQL in this transaction.
    let Some(error) = (unsafe { error.as_ref() }) else { return false };
    let is = |text: *const c_char, found: &str| {
        // SAFETY: texts of an error are C strings.
        text.is_null() || unsafe { CStr::from_ptr(text) }.to_string_lossy() == found
    };
    report.line_number() as c_int == error.lineno
        && is(error.filename, report.file())
        && is(error.message, report.message())
}
