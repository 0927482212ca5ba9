//! The option `external` in `WITH (…)`, next to pgvector's own.
//!
//! pgvector parses all other options, so its checks and messages are unchanged. Ours is parsed separately and stored behind pgvector's
//! structure, which pgvector does not read.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::prelude::*;
use pgvector::{DEFAULT_EF_CONSTRUCTION, DEFAULT_M};

use crate::hook;

const NAME: &CStr = c"external";

/// Our option, stored behind pgvector's options at the next multiple of eight bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tail {
    magic: u32,
    external: u32,
}

/// "lidx"
const MAGIC: u32 = 0x7864_696c;

/// The beginning of pgvector's `HnswOptions`, the same in every release.
#[repr(C)]
struct HnswOptions {
    header: i32,
    m: i32,
    ef_construction: i32,
}

/// The structure that PostgreSQL's parser fills in.
#[repr(C)]
struct Parsed {
    header: i32,
    external: bool,
}

thread_local! {
    static KIND: Cell<pg_sys::relopt_kind::Type> = const { Cell::new(0) };
}

/// The options of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexOptions {
    pub(crate) external: bool,
    pub(crate) m: u16,
    pub(crate) ef_construction: u16,
}

impl IndexOptions {
    pub(crate) const DEFAULT: Self = Self { external: false, m: DEFAULT_M, ef_construction: DEFAULT_EF_CONSTRUCTION };
}

pub(crate) fn register() {
    // SAFETY: the strings are static; called once, when the library is loaded.
    unsafe {
        let kind = pg_sys::add_reloption_kind();
        let about = c"Builds the index outside the database";
        // The lock that ALTER INDEX takes to set the option. Only builds read it, so other statements need not wait.
        let lock = pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE;
        pg_sys::add_bool_reloption(kind, NAME.as_ptr(), about.as_ptr(), false, lock);
        KIND.set(kind);
    }
}

/// The options of an index, pgvector's defaults where none are given.
///
/// # Safety
/// `index` must be an open hnsw index.
pub(crate) unsafe fn of(index: pg_sys::Relation) -> IndexOptions {
    // SAFETY: rd_options is what `amoptions` returned (or pgvector's own, in a session that had not loaded us then).
    unsafe {
        let stored = (*index).rd_options;
        let mut options = IndexOptions::DEFAULT;
        if stored.is_null() {
            return options;
        }
        let size = pgrx::varsize_any(stored);
        if size >= size_of::<HnswOptions>() {
            let pgvectors = stored.cast::<HnswOptions>();
            options.m = u16::try_from((*pgvectors).m).unwrap_or(options.m);
            options.ef_construction = u16::try_from((*pgvectors).ef_construction).unwrap_or(options.ef_construction);
        }
        if size >= size_of::<HnswOptions>() + size_of::<Tail>() && size.is_multiple_of(8) {
            let tail = stored.cast::<u8>().add(size - size_of::<Tail>()).cast::<Tail>().read_unaligned();
            options.external = tail.magic == MAGIC && tail.external != 0;
        }
        options
    }
}

/// Parses the options of an index.
///
/// Not guarded, and with nothing to drop, so that pgvector's errors pass through unchanged.
pub(crate) unsafe extern "C-unwind" fn amoptions(options: pg_sys::Datum, validate: bool) -> *mut pg_sys::bytea {
    // SAFETY: PostgreSQL passes null or an array of text; pgvector gets the same kind of array.
    unsafe {
        let Split { ours, theirs } = split(options);
        let base = (hook::original().options)(theirs, validate);
        complete(base, ours, validate)
    }
}

/// Our options and pgvector's, each as an array or null.
#[repr(C)]
#[derive(Clone, Copy)]
struct Split {
    ours: pg_sys::Datum,
    theirs: pg_sys::Datum,
}

#[pg_guard]
unsafe extern "C-unwind" fn split(options: pg_sys::Datum) -> Split {
    let none = pg_sys::Datum::null();
    if options.is_null() {
        return Split { ours: none, theirs: none };
    }
    // SAFETY: as for `amoptions`.
    unsafe {
        let array = pg_sys::pg_detoast_datum(options.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let mut elements = std::ptr::null_mut();
        let mut count = 0;
        let align = b'i' as std::ffi::c_char;
        pg_sys::deconstruct_array(
            array,
            pg_sys::TEXTOID,
            -1,
            false,
            align,
            &raw mut elements,
            std::ptr::null_mut(),
            &raw mut count,
        );
        let elements = if count > 0 { std::slice::from_raw_parts(elements, count as usize) } else { &[] };
        let is_ours = |option: &pg_sys::Datum| {
            let bytes = pgrx::varlena_to_byte_slice(option.cast_mut_ptr());
            bytes.strip_prefix(NAME.to_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
        };
        let (mut ours, mut theirs): (Vec<_>, Vec<_>) = elements.iter().copied().partition(is_ours);
        let array = |options: &mut Vec<pg_sys::Datum>| match options.len() {
            0 => none,
            len => {
                let array =
                    pg_sys::construct_array(options.as_mut_ptr(), len as i32, pg_sys::TEXTOID, -1, false, align);
                pg_sys::Datum::from(array)
            }
        };
        Split { ours: array(&mut ours), theirs: array(&mut theirs) }
    }
}

/// pgvector's options with ours behind them.
#[pg_guard]
unsafe extern "C-unwind" fn complete(
    base: *mut pg_sys::bytea,
    ours: pg_sys::Datum,
    validate: bool,
) -> *mut pg_sys::bytea {
    // SAFETY: `base` is null or what pgvector returned, `ours` an array of text or null.
    unsafe {
        let external = parse(ours, validate);
        if base.is_null() { base } else { append(base, Tail { magic: MAGIC, external: external.into() }) }
    }
}

/// The value of our option.
unsafe fn parse(options: pg_sys::Datum, validate: bool) -> bool {
    if options.is_null() {
        return false;
    }
    #[allow(clippy::needless_update)] // PostgreSQL 18 has one field more
    let element = pg_sys::relopt_parse_elt {
        optname: NAME.as_ptr(),
        opttype: pg_sys::relopt_type::RELOPT_TYPE_BOOL,
        offset: std::mem::offset_of!(Parsed, external) as i32,
        ..Default::default()
    };
    // SAFETY: the element describes `Parsed`, which is what PostgreSQL allocates and fills in.
    unsafe {
        let size = size_of::<Parsed>();
        let parsed = pg_sys::build_reloptions(options, validate, KIND.get(), size, &raw const element, 1);
        !parsed.is_null() && (*parsed.cast::<Parsed>()).external
    }
}

/// A copy of pgvector's options with the tail behind it.
unsafe fn append(base: *mut pg_sys::bytea, tail: Tail) -> *mut pg_sys::bytea {
    // SAFETY: `base` is a varlena that pgvector allocated; the copy has room for it, the padding and the tail.
    unsafe {
        let base_size = pgrx::varsize_any(base);
        let tail_at = base_size.next_multiple_of(8);
        let size = tail_at + size_of::<Tail>();
        let options = pg_sys::palloc0(size).cast::<u8>();
        std::ptr::copy_nonoverlapping(base.cast::<u8>(), options, base_size);
        options.add(tail_at).cast::<Tail>().write_unaligned(tail);
        pgrx::set_varsize_4b(options.cast(), size as i32);
        options.cast()
    }
}
