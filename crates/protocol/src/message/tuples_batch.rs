use crate::frame::{FLAG_LENGTHS, HEADER_BYTES, header};
use crate::{HEAP_TID_BYTES, kind};

use super::tuples::{HEAD_BYTES, LENGTH_BYTES};

/// Rows for one Tuples frame, borrowed from the caller.
#[derive(Clone, Copy, Debug)]
pub struct TuplesBatch<'a> {
    /// A heap TID of 6 bytes for each row.
    pub tids: &'a [u8],
    /// The length of each value (u32, little-endian), or `None` if all are equal.
    pub lengths: Option<&'a [u8]>,
    /// The values, one after the other.
    pub values: &'a [u8],
}

impl TuplesBatch<'_> {
    /// The bytes of a payload of `rows` rows with `values` bytes of values; with `varying`, their lengths are sent too.
    #[must_use]
    pub fn payload_bytes(rows: usize, varying: bool, values: usize) -> usize {
        HEAD_BYTES + rows * (HEAP_TID_BYTES + if varying { LENGTH_BYTES } else { 0 }) + values
    }

    /// The rows of the batch.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tids.len() / HEAP_TID_BYTES
    }

    /// The bytes of the payload.
    #[must_use]
    pub fn bytes(&self) -> usize {
        Self::payload_bytes(self.rows(), self.lengths.is_some(), self.values.len())
    }

    /// Calls `look` with the heap TID and value of each row.
    pub fn for_each(&self, mut look: impl FnMut([u8; HEAP_TID_BYTES], &[u8])) {
        let (tids, _) = self.tids.as_chunks();
        let lengths = self.lengths.map(|lengths| lengths.as_chunks().0);
        let same = self.values.len().checked_div(tids.len()).unwrap_or_default();
        let mut rest = self.values;
        for (row, &tid) in tids.iter().enumerate() {
            let length = lengths.map_or(same, |lengths| u32::from_le_bytes(lengths[row]) as usize);
            let (value, others) = rest.split_at(length);
            look(tid, value);
            rest = others;
        }
    }

    /// Emits the frame in parts (head, heap TIDs, lengths, values). Returns the frame's checksum, for the
    /// [`StreamChecksum`](crate::StreamChecksum).
    ///
    /// # Errors
    /// Those of the `emit` callback.
    ///
    /// # Panics
    /// If there is no row, which the protocol does not allow, or the values exceed the limit of a frame.
    pub fn emit<E>(&self, emit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<u32, E> {
        assert!(self.rows() > 0, "batch without rows");
        // Header and counts are one part, which saves a system call where each part takes one.
        let mut head = [0; HEADER_BYTES + HEAD_BYTES];
        let number = |number: usize| u32::try_from(number).expect("smaller than a frame").to_le_bytes();
        head[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&number(self.rows()));
        head[HEADER_BYTES + 4..].copy_from_slice(&number(self.values.len()));
        let (flags, lengths) = self.lengths.map_or((0, &[][..]), |lengths| (FLAG_LENGTHS, lengths));
        let payload = [&head[HEADER_BYTES..], self.tids, lengths, self.values];
        let (header, crc) = header(kind::TUPLES, flags, &payload);
        head[..HEADER_BYTES].copy_from_slice(&header);

        let parts = [&head[..], self.tids, lengths, self.values];
        parts.into_iter().filter(|part| !part.is_empty()).try_for_each(emit)?;
        Ok(crc)
    }
}
