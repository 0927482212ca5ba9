//! The SQL functions `lantern_index.…`. Their declarations are in `sql/`.
//!
//! | module | function |
//! |---|---|
//! | [`ping`] | is the builder there? |
//! | [`estimate`] | how much memory and space would a build need? [`table`] says what can have an index |
//! | [`advise`] | which index, and which settings? [`sample`] reads the table, [`choices`] writes the statements |
//! | [`check`] | is this index good? [`live`] reads its pages, [`delegate`] sends them to a builder, [`recall`] searches it, [`verdict`] judges in [`words`] |
//! | [`state`] | what do a few pages say of this index? for the view of all indexes |

/// Defines a function that SQL calls, with PostgreSQL's `PG_FUNCTION_INFO_V1`: it calls `$kept`, pgrx's wrapper of a Rust function, and raises the
/// error that was kept meanwhile ([`raised`](crate::raised)).
macro_rules! raising_kept {
    ($(#[$doc:meta])* $function:ident, $info:ident, $kept:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// For PostgreSQL only.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $function(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
            // SAFETY: the call is handed on as it is, and there is nothing to drop here.
            unsafe {
                let answer = $kept(call);
                $crate::raised::raise_kept();
                answer
            }
        }

        /// PostgreSQL's `PG_FUNCTION_INFO_V1`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $info() -> &'static pg_sys::Pg_finfo_record {
            const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
            &V1
        }
    };
}

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
mod table;
mod verdict;
mod words;

use pages::Estimate;
use pgrx::prelude::*;
use protocol::{BuilderMessage, Done};

use crate::column::Column;
use crate::failure::Failure;
use crate::hook::owned;
use crate::progress::{self, Phase};
use crate::session::Session;

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

/// PostgreSQL's message for unlogged relations of a standby, which have no file there.
const NO_FILE: &str = "cannot access temporary or unlogged relations during recovery";

/// Whether a relation is an unlogged one of a standby.
///
/// # Safety
/// The relation must be open.
unsafe fn has_no_file(relation: pg_sys::Relation) -> bool {
    // SAFETY: the relation is open, so its entry in the relation cache is valid.
    unsafe {
        (*(*relation).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_UNLOGGED && pg_sys::RecoveryInProgress()
    }
}

/// Why this session cannot read the pages of an index; `None` if it can.
///
/// # Safety
/// The index must be open.
unsafe fn unreadable(index: pg_sys::Relation) -> Option<&'static str> {
    // SAFETY: the index is open, so its entry in the relation cache is valid.
    unsafe {
        match (*(*index).rd_rel).relpersistence as u8 {
            pg_sys::RELPERSISTENCE_TEMP if !(*index).rd_islocaltemp => {
                Some("cannot access temporary tables of other sessions")
            }
            _ => has_no_file(index).then_some(NO_FILE),
        }
    }
}

/// Waits for the message that `answer` recognises, shows progress in `phase`, and returns the answer and the `Done` that follows it.
fn answer<T>(
    session: &mut Session,
    phase: Phase,
    answer: impl Fn(BuilderMessage) -> Option<T>,
) -> Result<(T, Done), Failure> {
    let mut found = None;
    progress::enter(phase, 0);
    loop {
        let message = session.next()?;
        let name = message.name();
        match message {
            BuilderMessage::Progress(step) => progress::tuples(step.done, step.total),
            BuilderMessage::Done(done) => {
                // The session has checked the order of messages: the answer came before.
                let found = found.take().ok_or_else(|| Failure::protocol("Done without an answer."))?;
                return Ok((found, done));
            }
            other => match answer(other) {
                Some(answer) => found = Some(answer),
                None => return Err(Failure::protocol(format!("{name} instead of an answer."))),
            },
        }
    }
}

/// The failure if an old builder has taken the request for one to build; it ends the build when the connection closes.
fn unsupported(message: &str) -> Failure {
    Failure::new(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, message)
        .hint("Use a lantern-index builder of this version or later.")
}

fn gone(relation: pg_sys::Oid) -> Failure {
    let message = format!("relation with OID {} does not exist", relation.to_u32());
    Failure::new(PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE, message)
}

/// The one value of a query that only reads. `Spi::get_one` takes a transaction id, and a standby has none.
fn read_one<T: FromDatum + IntoDatum>(sql: &str) -> Option<T> {
    Spi::connect(|client| client.select(sql, Some(1), &[])?.first().get_one()).ok().flatten()
}

/// A number as SQL's bigint, which is signed; clamped.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// `maintenance_work_mem` in bytes.
fn memory() -> u64 {
    // SAFETY: reads a setting.
    u64::try_from(unsafe { pg_sys::maintenance_work_mem }).unwrap_or_default() << 10
}

/// Elements that full pages hold; `None` if values vary in length.
fn elements_in(column: &Column, m: u16, blocks: u32) -> Option<u64> {
    let value_len = column.value_type.value_len(column.dims)?;
    Some(Estimate::elements_in(column.value_type, value_len, m, blocks))
}

fn too_large(needed: u64) -> Failure {
    let megabytes = needed.div_ceil(1 << 20);
    Failure::new(PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY, "checking the index needs more memory than maintenance_work_mem")
        .detail(format!("About {megabytes} MB are needed."))
        .hint(format!("Set maintenance_work_mem to \"{megabytes}MB\" for this session, or check a copy of the file with \"lantern-index inspect\"."))
}
