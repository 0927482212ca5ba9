//! The SQL functions `lantern_index.…`. Their declarations are in `sql/`.
//!
//! | module | function |
//! |---|---|
//! | [`ping`] | is the builder there? |
//! | [`estimate`] | how much memory and space would a build need? |
//! | [`advise`] | which index, and which settings? [`sample`] reads the table, [`choices`] writes the statements |
//! | [`check`] | is this index good? [`live`] reads its pages, [`delegate`] sends them to a builder, [`recall`] searches it, [`advice`] judges |
//! | [`state`] | what do a few pages say of this index? for the view of all indexes |

mod advice;
mod advise;
mod check;
mod choices;
mod delegate;
mod estimate;
mod live;
mod owner;
mod ping;
mod recall;
mod rows;
mod sample;
mod state;
mod statistics;

use pgrx::prelude::*;

use crate::failure::Failure;
use crate::hook::owned;

/// Ends with an error unless the caller may read the whole table.
///
/// # Safety
/// `relation` must be a relation's oid; it need not exist any more.
unsafe fn require_select(relation: pg_sys::Oid) {
    // SAFETY: reads catalogs, in a transaction.
    unsafe {
        let mode = pg_sys::ACL_SELECT as pg_sys::AclMode;
        let found = pg_sys::pg_class_aclcheck(relation, pg_sys::GetUserId(), mode);
        if found != pg_sys::AclResult::ACLCHECK_OK {
            let name = pg_sys::get_rel_name(relation);
            pg_sys::aclcheck_error(found, pg_sys::ObjectType::OBJECT_TABLE, name);
        }
    }
}

/// A relation's name, for messages.
///
/// # Safety
/// As for [`require_select`].
unsafe fn name(relation: pg_sys::Oid) -> String {
    // SAFETY: reads catalogs; the name is a string of ours.
    unsafe { owned(pg_sys::get_rel_name(relation)) }.unwrap_or_default()
}

fn gone(relation: pg_sys::Oid) -> Failure {
    let message = format!("relation with OID {} does not exist", relation.to_u32());
    Failure::new(PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE, message)
}

/// The one value of a query that only reads. `Spi::get_one` takes a transaction id, and a standby has none.
fn read_one<T: FromDatum + IntoDatum>(sql: &str) -> Option<T> {
    Spi::connect(|client| client.select(sql, Some(1), &[])?.first().get_one()).ok().flatten()
}

/// A number for SQL, which has no unsigned ones.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
