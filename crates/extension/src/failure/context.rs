//! The CONTEXT of our own errors: the index, and the build's id at router and builder. Other errors stay as they are.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use pgrx::prelude::*;

use super::printable;
use crate::hook::owned;

unsafe extern "C-unwind" {
    /// PostgreSQL's own, which `pg_sys` leaves out.
    fn errcontext_msg(format: *const c_char, ...) -> c_int;
}

thread_local! {
    /// Whether the error that is being raised is ours.
    static OURS: Cell<bool> = const { Cell::new(false) };
    /// The index's name as a C string that the client can represent.
    static INDEX: Cell<Name> = const { Cell::new([0; NAME_BYTES]) };
    /// The build's id as a C string; empty before there is one.
    static BUILD: Cell<BuildId> = const { Cell::new([0; BUILD_ID_LEN + 1]) };
}

/// Room for a name and the terminating zero: a name with bytes that are no UTF-8 gets longer when they are replaced.
const NAME_BYTES: usize = 4 * pg_sys::NAMEDATALEN as usize;

type Name = [u8; NAME_BYTES];

/// Digits of a build's id.
pub(crate) const BUILD_ID_LEN: usize = 16;

/// A build's id as a C string.
pub(crate) type BuildId = [u8; BUILD_ID_LEN + 1];

/// The current build's id.
pub(crate) fn build() -> BuildId {
    BUILD.get()
}

/// Sets the id in a parallel worker, to the build of its backend.
pub(crate) fn adopt(build: BuildId) {
    BUILD.set(build);
}

/// Sets the id, cut to [`BUILD_ID_LEN`] digits.
pub(crate) fn build_id(id: &str) {
    let mut text = [0; BUILD_ID_LEN + 1];
    text[..BUILD_ID_LEN].iter_mut().zip(id.bytes()).for_each(|(to, from)| *to = from);
    BUILD.set(text);
}

/// Marks the next error as ours.
pub(crate) fn ours() {
    OURS.set(true);
}

/// Marks the next error as not ours.
pub(crate) fn theirs() {
    OURS.set(false);
}

/// Runs `work` for an index; our errors meanwhile name it in their CONTEXT.
///
/// # Safety
/// `index` must be an open relation. Nothing between this call and PostgreSQL may have anything to drop.
pub(crate) unsafe fn of_index<T>(index: pg_sys::Relation, work: impl FnOnce() -> T) -> T {
    theirs();
    build_id("");
    // SAFETY: the name of an open relation.
    INDEX.set(c_string(&printable(&unsafe { owned((*(*index).rd_rel).relname.data.as_ptr()) }.unwrap_or_default())));
    // SAFETY: the entry is taken off PostgreSQL's stack again, also by an error that jumps over this.
    unsafe {
        let previous = pg_sys::error_context_stack;
        let mut entry = pg_sys::ErrorContextCallback { previous, callback: Some(name), arg: null_mut() };
        pg_sys::error_context_stack = &raw mut entry;
        let result = work();
        pg_sys::error_context_stack = previous;
        result
    }
}

/// Runs `work`, during which the CONTEXT of messages names only the index that is built, if there is one. Other entries, such as the
/// statement around the build, may have characters that the client cannot represent, for which PostgreSQL would raise an error.
///
/// # Safety
/// The caller must put PostgreSQL's stack of callbacks back if an error jumps over this.
pub(crate) unsafe fn only_ours<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: as for `of_index`; the entries of the stack are live.
    unsafe {
        let all = pg_sys::error_context_stack;
        let mut entry = pg_sys::ErrorContextCallback { previous: null_mut(), callback: Some(name), arg: null_mut() };
        let is_ours = |callback: Option<unsafe extern "C-unwind" fn(*mut c_void)>| {
            callback.is_some_and(|callback| callback as usize == name as *const () as usize)
        };
        let mut at = all;
        while !at.is_null() && !is_ours((*at).callback) {
            at = (*at).previous;
        }
        pg_sys::error_context_stack = if at.is_null() { null_mut() } else { &raw mut entry };
        let result = work();
        pg_sys::error_context_stack = all;
        result
    }
}

/// A C string of as many whole characters as fit.
fn c_string(text: &str) -> Name {
    let mut bytes = [0; NAME_BYTES];
    let end = text.floor_char_boundary(NAME_BYTES - 1);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

unsafe extern "C-unwind" fn name(_private: *mut c_void) {
    if OURS.get() {
        // SAFETY: name and id are C strings; the format without an id does not read it.
        unsafe {
            let (name, build) = (INDEX.get(), BUILD.get());
            let format = if build[0] == 0 {
                c"external build of index \"%s\""
            } else {
                c"external build of index \"%s\", build %s"
            };
            errcontext_msg(format.as_ptr(), name.as_ptr(), build.as_ptr());
        }
    }
}
