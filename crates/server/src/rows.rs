use pgvector::ValueType;
use protocol::{EndOfTuples, ProtocolError, StreamChecksum, Tuples};

use crate::session_error::SessionError;

/// Checks the lengths of values in batches, and keeps totals of rows and checksums.
#[derive(Debug)]
pub(crate) struct RowTotals {
    /// Bytes of each value; `None` if values vary in length.
    value_len: Option<u64>,
    rows: u64,
    checksum: StreamChecksum,
}

impl RowTotals {
    pub(crate) fn new(value_type: ValueType, dims: u32) -> Self {
        Self { value_len: value_type.value_len(dims).map(|len| len as u64), rows: 0, checksum: StreamChecksum::new() }
    }

    /// Counts a batch, with the checksum of its frame.
    pub(crate) fn add(&mut self, tuples: &Tuples, frame_crc: u32) -> Result<(), ProtocolError> {
        let count = tuples.count;
        let found = tuples.values.len() as u64;
        let expected = match self.value_len {
            // Lengths are sent only for types of varying length.
            Some(_) if !tuples.lengths.is_empty() => 0,
            Some(len) => u64::from(count).saturating_mul(len),
            None if tuples.lengths.is_empty() => 0,
            None => found,
        };
        if found != expected {
            return Err(ProtocolError::Values { count, expected, found });
        }
        self.rows = self.rows.saturating_add(u64::from(count));
        self.checksum.add(frame_crc);
        Ok(())
    }

    /// Compares with the totals that the client reports at the end.
    pub(crate) fn check(&self, end: &EndOfTuples) -> Result<(), SessionError> {
        if self.rows != end.rows {
            return Err(SessionError::RowCount { received: self.rows, sent: end.rows });
        }
        let received = self.checksum.value();
        if received != end.checksum {
            return Err(SessionError::RowChecksum { received, sent: end.checksum });
        }
        Ok(())
    }
}
