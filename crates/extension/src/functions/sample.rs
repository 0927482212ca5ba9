//! Runs SQL queries, and sends the values that they return to the builder.

use std::ffi::{CString, c_char, c_int, c_long};
use std::sync::mpsc;

use bytes::BytesMut;
use pgrx::PgMemoryContexts;
use pgrx::prelude::*;
use pgvector::SqlColumn;
use protocol::{HEAP_TID_BYTES, LENGTH_BYTES, TUPLES_BATCH_BYTES, TuplesBatch};

use super::choices::Names;
use super::statistics::Statistics;
use crate::column::Column;
use crate::connection_thread::{self, Gone};
use crate::failure::Failure;
use crate::link::Link;
use crate::progress;
use crate::raised;
use crate::rate_limit::RateLimit;
use crate::session::Session;
use crate::wait;

/// Rows per fetch from the cursor.
const FETCH: i64 = 200;
/// Rows per block in made-up TIDs: the protocol wants a TID for every row.
const PER_BLOCK: u64 = 200;

/// Batches between the backend and its thread.
const BATCHES: usize = 4;

/// Values in their wire encoding.
#[derive(Default)]
pub(super) struct Batch {
    tids: Vec<u8>,
    lengths: Vec<u8>,
    values: BytesMut,
    varying: bool,
}

impl Batch {
    pub(super) fn rows(&self) -> u64 {
        (self.tids.len() / HEAP_TID_BYTES) as u64
    }

    /// Appends the value of row `number`.
    ///
    /// # Safety
    /// `value` must be a value of the column's type, not null.
    unsafe fn push(&mut self, column: &Column, number: u64, value: pg_sys::Datum) -> Result<(), Failure> {
        // SAFETY: as promised by the caller.
        let Some(value) = (unsafe { column.index_value(value)? }) else { return Ok(()) };
        let at = self.values.len();
        self.values.resize(at + value.len(), 0);
        value.write(&mut self.values[at..]);
        self.varying = column.value_type.value_len(column.dims).is_none();
        self.lengths.extend_from_slice(&(value.len() as u32).to_le_bytes());
        let (block, offset) = ((number / PER_BLOCK) as u32, (number % PER_BLOCK + 1) as u16);
        self.tids.extend_from_slice(&graph::HeapTid::new(block, offset).0);
        Ok(())
    }

    /// Sends the values, in frames of the usual size.
    pub(super) fn send(&self, session: &mut Session, rate_limit: &mut RateLimit) -> Result<(), Failure> {
        let (tids, lengths) = (self.tids.as_chunks::<HEAP_TID_BYTES>().0, self.lengths.as_chunks::<LENGTH_BYTES>().0);
        let (mut row, mut byte) = (0, 0);
        while row < tids.len() {
            let (first, start) = (row, byte);
            while row < tids.len() && (row == first || byte - start < TUPLES_BATCH_BYTES) {
                byte += u32::from_le_bytes(lengths[row]) as usize;
                row += 1;
            }
            let batch = TuplesBatch {
                tids: tids[first..row].as_flattened(),
                lengths: self.varying.then(|| lengths[first..row].as_flattened()),
                values: &self.values[start..byte],
            };
            session.send(&batch)?;
            session.pause(rate_limit.pause_after(batch.bytes()))?;
        }
        Ok(())
    }
}

/// The values that a query returns.
///
/// # Safety
/// A snapshot must be active; the query must return values of the column's type in its first column.
pub(super) unsafe fn queries(column: &Column, sql: &str) -> Result<Batch, Failure> {
    let mut batch = Batch::default();
    // SAFETY: as promised by the caller.
    unsafe { for_each(sql, |value| batch.push(column, batch.rows(), value))? };
    if batch.rows() == 0 {
        let message = "queries return no values";
        return Err(Failure::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message)
            .hint("Leave queries out to have some rows of the table searched for."));
    }
    Ok(batch)
}

/// Sends the values of a query, at most `most`. Returns how many there were. A thread sends them, and heartbeats while the query runs: the first
/// value may lie at the end of a large table.
///
/// # Safety
/// As for [`queries`].
pub(super) unsafe fn send(
    column: &Column,
    sql: &str,
    most: u64,
    session: &mut Session,
    rate_limit: &mut RateLimit,
) -> Result<u64, Failure> {
    let (full, filled) = mpsc::sync_channel(BATCHES);
    let read = |link: &Link| {
        // The thread's failure becomes the error.
        let hand_over = |batch| {
            let handed = connection_thread::hand_over(link, &full, batch);
            handed.map_err(|Gone| Failure::protocol("The connection has ended."))
        };
        let (mut batch, mut sent) = (Batch::default(), 0);
        // SAFETY: as promised by the caller.
        let read = unsafe {
            for_each(sql, |value| {
                if link.is_over() {
                    // The thread's failure becomes the error.
                    return Err(Failure::protocol("The connection has ended."));
                }
                if sent + batch.rows() >= most {
                    return Ok(());
                }
                batch.push(column, sent + batch.rows(), value)?;
                if batch.values.len() >= TUPLES_BATCH_BYTES {
                    sent += batch.rows();
                    hand_over(std::mem::take(&mut batch))?;
                    progress::tuples(sent, 0);
                }
                Ok(())
            })
        };
        let all = read.and_then(|()| {
            sent += batch.rows();
            hand_over(batch).map(|()| sent)
        });
        // The thread ends after the last batch.
        drop(full);
        link.wake_thread();
        Ok(all)
    };
    let (sent, ()) = connection_thread::run_both(
        session,
        wait::TICK,
        move |session, link| {
            connection_thread::send_all(session, link, &filled, |session, batch: Batch| batch.send(session, rate_limit))
        },
        read,
    )?;
    sent
}

/// Estimates the number of the table's rows with a value. `density`: rows per block as of the last VACUUM or ANALYZE, if there was one.
///
/// # Safety
/// A snapshot must be active.
pub(super) unsafe fn rows(
    names: &Names,
    relation: pg_sys::Oid,
    column: pg_sys::AttrNumber,
    blocks: u32,
    density: Option<f64>,
) -> Result<u64, Failure> {
    let (blocks, mut counted) = (f64::from(blocks), 0);
    // SAFETY: as promised by the caller; the query returns a bigint. Statistics are read from catalogs.
    unsafe {
        for_each(&names.column.count(blocks), |count| {
            counted = i64::from_datum(count, false).unwrap_or_default();
            Ok(())
        })?;
        let statistics = Statistics::of(relation, column);
        let by_statistics = density.map(|density| statistics.rows((density * blocks).round() as u64) as f64);
        Ok(SqlColumn::rows(blocks, counted, by_statistics))
    }
}

unsafe extern "C-unwind" {
    /// PostgreSQL's own, without the guard that `pg_sys` adds: errors of the query are raised in them.
    #[link_name = "SPI_cursor_open_with_args"]
    fn open(
        name: *const c_char,
        sql: *const c_char,
        count: c_int,
        types: *mut pg_sys::Oid,
        values: *mut pg_sys::Datum,
        nulls: *const c_char,
        read_only: bool,
        options: c_int,
    ) -> pg_sys::Portal;
    #[link_name = "SPI_cursor_fetch"]
    fn fetch(portal: pg_sys::Portal, forward: bool, count: c_long);
}

/// Runs a read-only query as the caller of the function, and visits the first column of its rows unless that is NULL.
///
/// # Safety
/// A snapshot must be active.
unsafe fn for_each(sql: &str, mut visit: impl FnMut(pg_sys::Datum) -> Result<(), Failure>) -> Result<(), Failure> {
    let sql = CString::new(sql).map_err(|_| Failure::new(PgSqlErrorCode::ERRCODE_SYNTAX_ERROR, "NUL in a query"))?;
    // Not a child of SPI's context, which is freed before this one.
    let mut context = PgMemoryContexts::new("hnsw index advice");
    // SAFETY: what is opened here is closed here or, after an error of PostgreSQL, by the end of the transaction. Values are read while
    // their row is in memory; copies are freed with the context.
    unsafe {
        pg_sys::SPI_connect();
        let (name, types, values, nulls) =
            (std::ptr::null(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null());
        let portal = raised::keep_error(|| open(name, sql.as_ptr(), 0, types, values, nulls, true, 0));
        let mut result = Ok(());
        while result.is_ok() {
            raised::keep_error(|| fetch(portal, true, FETCH));
            let (table, count) = (pg_sys::SPI_tuptable, pg_sys::SPI_processed as usize);
            if count == 0 {
                break;
            }
            result = context.switch_to(|_| {
                (0..count).try_for_each(|row| {
                    let mut null = false;
                    let tuple = *(*table).vals.add(row);
                    let value = pg_sys::SPI_getbinval(tuple, (*table).tupdesc, 1, &raw mut null);
                    if null { Ok(()) } else { visit(value) }
                })
            });
            context.reset();
            pg_sys::SPI_freetuptable(table);
        }
        pg_sys::SPI_cursor_close(portal);
        pg_sys::SPI_finish();
        result
    }
}
