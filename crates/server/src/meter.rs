use std::sync::Arc;

use protocol::Tuples;

use crate::admission::{Need, Never, Reservation};
use crate::end::SessionError;

/// More rows than the client expected: room for so many more is reserved at a time, if there is any.
const STEP: u64 = 10_000;

/// Keeps the memory that is reserved in step with the rows that come.
#[derive(Debug)]
pub(crate) struct Meter {
    need: Need,
    reservation: Arc<Reservation>,
    rows: u64,
    bytes: u64,
}

impl Meter {
    pub(crate) fn new(need: Need, reservation: Arc<Reservation>) -> Self {
        Self { need, reservation, rows: 0, bytes: 0 }
    }

    /// Before a batch is handed on: reserves more if the rows are more than was thought. Returns whether it did.
    pub(crate) fn add(&mut self, tuples: &Tuples) -> Result<bool, SessionError> {
        self.rows = self.rows.saturating_add(u64::from(tuples.count));
        self.bytes = self.bytes.saturating_add(tuples.values.len() as u64);
        let needed = self.need(self.rows);
        let reserved = self.reservation.bytes();
        if needed <= reserved {
            return Ok(false);
        }
        let ahead = self.need(self.rows.saturating_add(self.rows / 4).saturating_add(STEP));
        if self.reservation.resize(ahead).is_ok() {
            tracing::debug!(rows = self.rows, memory = ahead, "more rows than expected");
            return Ok(true);
        }
        let outgrown = |full: Never| SessionError::Outgrown { rows: self.rows, needed, reserved, free: full.limit };
        self.reservation.resize(needed).map_err(outgrown)?;
        Ok(true)
    }

    /// Bytes reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.reservation.bytes()
    }

    /// All rows have come: gives back what was reserved for more.
    pub(crate) fn end(&self) {
        let needed = self.need(self.rows);
        if needed < self.reservation.bytes() {
            // Less can always be had.
            let _ = self.reservation.resize(needed);
        }
    }

    fn need(&self, rows: u64) -> u64 {
        self.need.of_rows(rows, self.rows, self.bytes)
    }
}
