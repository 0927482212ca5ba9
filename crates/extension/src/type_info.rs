//! pgvector's `HnswTypeInfo`, whose layout differs between releases.
//!
//! Calling a wrong function pointer would crash the backend, and the structure has neither a size nor a version (the SQL objects'
//! version need not be the library's). So each word is resolved to a symbol, and an unknown layout is refused.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;

use pgrx::prelude::*;

use crate::failure::{Failure, IN_DATABASE};

mod layout;

use layout::{Layout, Word};

pub(crate) type CheckValue = unsafe extern "C-unwind" fn(*mut c_char);

/// pgvector's limits and functions for a type.
pub(crate) struct TypeInfo {
    pub(crate) max_dims: i32,
    pub(crate) normalize: pg_sys::PGFunction,
    pub(crate) check: Option<CheckValue>,
}

impl TypeInfo {
    /// Reads the structure that the support function `name` returned.
    ///
    /// # Safety
    /// `answer` must point to a `HnswTypeInfo` of a pgvector from 0.7.0 on.
    pub(crate) unsafe fn read(answer: *const c_void, name: &str) -> Result<Self, Failure> {
        // SAFETY: the structure begins with an int and consists of words. The fourth is read only if the second is a
        // function other than `normalize`, so that `normalize` is still to come.
        let layout = Layout::of(|number| unsafe { look_up(answer.cast::<*const c_void>().add(number).read()) });
        let Layout { normalize, check } = layout.ok_or_else(|| unknown(name))?;
        // SAFETY: as above; the words are null or functions of these types.
        unsafe {
            Ok(Self {
                max_dims: answer.cast::<c_int>().read(),
                normalize: answer.cast::<pg_sys::PGFunction>().add(normalize).read(),
                check: answer.cast::<Option<CheckValue>>().add(check).read(),
            })
        }
    }
}

fn unknown(name: &str) -> Failure {
    Failure::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        "this version of pgvector is not supported by external index builds",
    )
    .detail(format!("Its function \"{name}\" returns a structure of unknown layout."))
    .hint(format!("{IN_DATABASE} A newer lantern_index may know this pgvector."))
}

/// The symbol at an address in the loaded libraries.
fn look_up(address: *const c_void) -> Word {
    if address.is_null() {
        return Word::Null;
    }
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: takes any address, and reads nothing there; zero is a valid value for all fields of the result.
    let (is_found, found) = unsafe { (libc::dladdr(address, found.as_mut_ptr()) != 0, found.assume_init()) };
    match is_found {
        true if found.dli_saddr.cast_const() == address && !found.dli_sname.is_null() => {
            // SAFETY: the name of a symbol, in a library that stays loaded.
            Word::Function(unsafe { CStr::from_ptr(found.dli_sname) }.to_string_lossy().into_owned())
        }
        true => Word::Unnamed,
        false => Word::Other,
    }
}
