//! The CONTEXT of our own errors: the index, and the build's id at router and builder. Other errors stay as they are.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use pgrx::prelude::*;

unsafe extern "C-unwind" {
    /// PostgreSQL's own, which `pg_sys` leaves out.
    fn errcontext_msg(format: *const c_char, ...) -> c_int;
}

thread_local! {
    /// Whether the error that is being raised is ours.
    static OURS: Cell<bool> = const { Cell::new(false) };
    /// The build's id as a C string; empty before there is one.
    static BUILD: Cell<BuildId> = const { Cell::new([0; BUILD_ID_LEN + 1]) };
}

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
    // SAFETY: what is put on PostgreSQL's stack is taken off again; an error that jumps over this takes it off as well.
    unsafe {
        let previous = pg_sys::error_context_stack;
        let mut entry = pg_sys::ErrorContextCallback { previous, callback: Some(name), arg: index.cast() };
        pg_sys::error_context_stack = &raw mut entry;
        let result = work();
        pg_sys::error_context_stack = previous;
        result
    }
}

unsafe extern "C-unwind" fn name(index: *mut c_void) {
    if OURS.get() {
        // SAFETY: the relation is open, its name and the number are C strings; what a format does not use is not looked at.
        unsafe {
            let name = (*(*index.cast::<pg_sys::RelationData>()).rd_rel).relname.data.as_ptr();
            let build = BUILD.get();
            let format = if build[0] == 0 {
                c"external build of index \"%s\""
            } else {
                c"external build of index \"%s\", build %s"
            };
            errcontext_msg(format.as_ptr(), name, build.as_ptr());
        }
    }
}
