//! Whether an index is logged, and hints if PostgreSQL's settings do not suit the amount of WAL.

use pages::PAGE_SIZE;
use pgrx::prelude::*;
use pgvector::ValueType;

/// Smaller indexes are logged in a moment, whatever the settings.
const LARGE: u64 = 32 << 20;

/// `WAL_COMPRESSION_PGLZ`; up to PostgreSQL 14 `on`.
const PGLZ: i32 = 1;

/// Whether changes of the index are logged: PostgreSQL's `RelationNeedsWAL`.
///
/// # Safety
/// The relation must be open.
pub(super) unsafe fn needs_wal(index: pg_sys::Relation) -> bool {
    // SAFETY: the relation is open.
    unsafe {
        let permanent = (*(*index).rd_rel).relpersistence == pg_sys::RELPERSISTENCE_PERMANENT as std::ffi::c_char;
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        let new_file = (*index).rd_firstRelfilenodeSubid;
        #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
        let new_file = (*index).rd_firstRelfilelocatorSubid;
        const NONE: pg_sys::SubTransactionId = 0;
        let in_this_transaction = (*index).rd_createSubid != NONE || new_file != NONE;
        permanent && (pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32 || !in_this_transaction)
    }
}

/// Hints about settings that make the WAL of an index of `blocks` blocks cost more than it must; empty if there are none.
///
/// # Safety
/// The relation must be open.
pub(crate) unsafe fn hint(index: pg_sys::Relation, value_type: ValueType, blocks: u32) -> String {
    let bytes = u64::from(blocks) * PAGE_SIZE as u64;
    // SAFETY: the relation is open.
    if bytes < LARGE || !unsafe { needs_wal(index) } {
        return String::new();
    }
    // SAFETY: settings that only this thread reads and writes.
    let (compression, most) = unsafe { (number(pg_sys::wal_compression), pg_sys::max_wal_size_mb) };
    let mut hints = Vec::new();
    if compression == PGLZ && matches!(value_type, ValueType::Vector | ValueType::HalfVec) {
        hints.push(
            "Compressing pages of vectors with pglz takes longer than writing them, and hardly makes them smaller: set wal_compression to \
             lz4 or off for the build."
                .to_owned(),
        );
    }
    // Checkpoints start at about half of `max_wal_size`, so that the next ends before all of it is used.
    if 2 * bytes > u64::try_from(most).unwrap_or(0) << 20 {
        hints.push(format!(
            "The index, {} MB, is larger than half of max_wal_size, so that logging it causes checkpoints: raise max_wal_size for the build.",
            bytes >> 20
        ));
    }
    hints.join(" ")
}

/// The number of a setting that is a truth value up to PostgreSQL 14.
fn number(setting: impl Into<i32>) -> i32 {
    setting.into()
}
