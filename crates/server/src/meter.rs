use std::sync::Arc;

use hnsw::Storage;
use protocol::Tuples;

use crate::admission::{Full, Need, Reservation};
use crate::session_error::SessionError;

/// The reservation is extended by this many rows at a time when more rows arrive than estimated.
const STEP: u64 = 10_000;

/// Rows that the engine may still store in memory after the switch to the spool: one chunk.
const UNDERWAY: u64 = 512;

/// Limits the rows that arrive, and adjusts the memory reservation to their size.
pub(crate) trait Bound {
    /// Called before a batch is passed on. Returns whether the reservation has grown.
    fn add(&mut self, tuples: &Tuples) -> Result<bool, SessionError>;
    /// Called after the last row.
    fn end(&self);
    /// Bytes reserved.
    fn reserved(&self) -> u64;
}

/// The limits of a build: the configured number of rows, and memory for them.
#[derive(Debug)]
pub(crate) struct Meter {
    need: Need,
    storage: Storage,
    reservation: Arc<Reservation>,
    max_rows: u64,
    rows: u64,
    bytes: u64,
}

impl Meter {
    pub(crate) fn new(need: Need, storage: Storage, reservation: Arc<Reservation>, max_rows: u64) -> Self {
        Self { need, storage, reservation, max_rows, rows: 0, bytes: 0 }
    }

    /// Reserves memory for more rows than have arrived.
    fn reserve_ahead(&self) -> Result<(), Full> {
        self.reservation.resize(self.need(self.rows.saturating_add(self.rows / 4).saturating_add(STEP)))
    }

    /// Reserves memory for the rows that have arrived.
    fn reserve(&self) -> Result<(), Full> {
        self.reservation.resize(self.need(self.rows))
    }

    fn need(&self, rows: u64) -> u64 {
        self.need.of_rows(rows, self.rows, self.bytes)
    }
}

impl Bound for Meter {
    /// Reserves more memory if there are more rows than estimated.
    fn add(&mut self, tuples: &Tuples) -> Result<bool, SessionError> {
        self.rows = self.rows.saturating_add(u64::from(tuples.count));
        self.bytes = self.bytes.saturating_add(tuples.values.len() as u64);
        if self.max_rows > 0 && self.rows > self.max_rows {
            return Err(SessionError::TooManyRows(self.max_rows));
        }
        let reserved = self.reservation.bytes();
        if self.need(self.rows) <= reserved {
            return Ok(false);
        }
        let grown = match self.reserve_ahead() {
            // Switch before the memory is exhausted: each further row needs some memory even if its value is in the spool.
            Err(_) if !self.need.is_spooled() && self.storage.spool() => {
                // Values of batches in flight and of the engine's current chunk may still be stored in memory.
                let in_memory = self.rows.saturating_add(UNDERWAY);
                tracing::info!(
                    rows = self.rows,
                    memory = reserved,
                    "no more memory: values go to the spool from now on"
                );
                self.need = self.need.spooled_after(in_memory);
                self.reserve_ahead().or_else(|_| self.reserve())
            }
            Err(_) => self.reserve(),
            Ok(()) => Ok(()),
        };
        let needed = self.need(self.rows);
        grown.map_err(|full| SessionError::Outgrown { rows: self.rows, needed, reserved, free: full.free })?;
        Ok(true)
    }

    fn reserved(&self) -> u64 {
        self.reservation.bytes()
    }

    /// Releases what was reserved for rows that did not come.
    fn end(&self) {
        let needed = self.need(self.rows);
        if needed < self.reservation.bytes() {
            // Shrinking cannot fail.
            let _ = self.reservation.resize(needed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use distance::Metric;
    use hnsw::{BuildSpec, Storage};
    use pgvector::ValueType;
    use protocol::Tuples;
    use service::Client;

    use super::{Bound, Meter};
    use crate::admission::{Admission, Need};

    #[test]
    fn values_that_are_in_the_spool_from_the_start_need_no_memory_later() {
        const DIMS: u32 = 1000;
        let spec = BuildSpec::new(ValueType::Vector, Metric::L2, DIMS, 16, 64);
        let need = Need::new(&spec, 1).spooled_after(0);
        // Room for 20,000 rows, but not for a quarter more.
        let limit = need.at_first(20_000);
        let client = Client::unnamed("127.0.0.1:1".parse().unwrap());
        let place = Admission::new(limit, 0).enter(need.at_first(10_000), &client).unwrap();
        let storage = Storage::with_spool(std::env::temp_dir());
        storage.spool();
        let mut meter = Meter::new(need, storage, Arc::new(place.take().unwrap()), 0);
        let values = Bytes::from(vec![0; 500 * 4 * DIMS as usize]);
        let rows = Tuples { count: 500, tids: Bytes::from(vec![0; 500 * 6]), lengths: Bytes::new(), values };
        for batch in 1..=40 {
            assert!(meter.add(&rows).is_ok(), "after {} rows", batch * 500);
        }
        assert!(meter.add(&rows).is_err(), "beyond the limit");
    }
}
