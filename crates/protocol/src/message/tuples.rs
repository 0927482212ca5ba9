use bytes::{BufMut, Bytes, BytesMut};

use crate::frame::{FLAG_LENGTHS, Frame};
use crate::wire::Reader;
use crate::{HEAP_TID_BYTES, ProtocolError};

/// Bytes of the payload before the heap TIDs.
pub(super) const HEAD_BYTES: usize = 8;
/// Bytes of a value's length.
pub const LENGTH_BYTES: usize = 4;

/// A batch of rows, as slices of the frame's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuples {
    /// The number of rows, at least 1.
    pub count: u32,
    /// `count` heap TIDs of 6 bytes, as PostgreSQL stores them.
    pub tids: Bytes,
    /// `count` lengths in bytes (u32, little-endian), or empty if all values have the same length.
    pub lengths: Bytes,
    /// The values, one after the other, in the type's encoding.
    pub values: Bytes,
}

impl Tuples {
    /// The heap TIDs.
    pub fn tids(&self) -> impl Iterator<Item = [u8; HEAP_TID_BYTES]> + '_ {
        let (tids, _) = self.tids.as_chunks();
        tids.iter().copied()
    }

    /// The length of each value in bytes.
    pub fn value_lens(&self) -> impl Iterator<Item = u32> + '_ {
        let (lengths, _) = self.lengths.as_chunks();
        let same = if lengths.is_empty() { self.count } else { 0 };
        let value_len = u32::try_from(self.values.len()).unwrap_or(u32::MAX) / self.count.max(1);
        let lengths = lengths.iter().copied().map(u32::from_le_bytes);
        lengths.chain(std::iter::repeat_n(value_len, same as usize))
    }

    /// The rows one by one: heap TID and value.
    pub fn rows(&self) -> impl Iterator<Item = ([u8; HEAP_TID_BYTES], &[u8])> {
        let mut rest = &self.values[..];
        self.tids().zip(self.value_lens()).map(move |(tid, len)| {
            let (value, after) = rest.split_at(rest.len().min(len as usize));
            rest = after;
            (tid, value)
        })
    }

    pub(super) fn flags(&self) -> u8 {
        if self.lengths.is_empty() { 0 } else { FLAG_LENGTHS }
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u32_le(self.count);
        out.put_u32_le(u32::try_from(self.values.len()).expect("limited by max_payload"));
        out.put_slice(&self.tids);
        out.put_slice(&self.lengths);
        out.put_slice(&self.values);
    }

    /// Checks the lengths of all parts. The content of values is not checked.
    pub(super) fn read(frame: &Frame) -> Result<Self, ProtocolError> {
        let message = "Tuples";
        let mut payload = frame.payload.clone();
        let mut reader = Reader::new(message, &payload);
        let count = reader.u32("count")?;
        let values_len = reader.u32("values_len")?;
        if count == 0 {
            return Err(ProtocolError::Empty { message });
        }
        let _ = payload.split_to(HEAD_BYTES);
        let mut part = |field, needed: u64| {
            let left = payload.len();
            match usize::try_from(needed) {
                Ok(needed) if needed <= left => Ok(payload.split_to(needed)),
                _ => Err(ProtocolError::Truncated { message, field, needed, left }),
            }
        };
        let tids = part("tids", u64::from(count) * HEAP_TID_BYTES as u64)?;
        let with_lengths = frame.flags & FLAG_LENGTHS != 0;
        let lengths = part("lengths", if with_lengths { u64::from(count) * LENGTH_BYTES as u64 } else { 0 })?;
        let values = part("values", u64::from(values_len))?;
        if !payload.is_empty() {
            return Err(ProtocolError::Trailing { message, extra: payload.len() });
        }

        let tuples = Self { count, tids, lengths, values };
        // No overflow: 2 MiB hold too few lengths.
        let expected = tuples.value_lens().map(u64::from).sum();
        let found = u64::from(values_len);
        if expected != found || tuples.value_lens().any(|len| len == 0) {
            return Err(ProtocolError::Values { count, expected, found });
        }
        Ok(tuples)
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::Tuples;
    use crate::frame::{FLAG_LENGTHS, Frame};
    use crate::{ProtocolError, kind};

    fn read(count: u32, values_len: u32, tids: usize, lengths: &[u32], values: usize) -> Result<Tuples, ProtocolError> {
        let mut payload = BytesMut::new();
        payload.put_u32_le(count);
        payload.put_u32_le(values_len);
        payload.put_bytes(1, tids);
        lengths.iter().for_each(|&length| payload.put_u32_le(length));
        payload.put_bytes(2, values);
        let flags = if lengths.is_empty() { 0 } else { FLAG_LENGTHS };
        Tuples::read(&Frame { kind: kind::TUPLES, flags, crc: 0, payload: payload.freeze() })
    }

    #[test]
    fn rows_have_their_values() {
        let same = read(2, 8, 12, &[], 8).unwrap();
        assert_eq!(same.rows().collect::<Vec<_>>(), [([1; 6], &[2; 4][..]), ([1; 6], &[2; 4][..])]);
        let varying = read(2, 5, 12, &[1, 4], 5).unwrap();
        assert_eq!(varying.rows().collect::<Vec<_>>(), [([1; 6], &[2; 1][..]), ([1; 6], &[2; 4][..])]);
    }

    #[test]
    fn parts_that_do_not_fit_the_count_are_refused() {
        let message = "Tuples";
        let truncated = |field, needed, left| Err(ProtocolError::Truncated { message, field, needed, left });
        assert_eq!(read(0, 0, 0, &[], 0), Err(ProtocolError::Empty { message }));
        assert_eq!(read(2, 8, 11, &[], 0), truncated("tids", 12, 11));
        assert_eq!(read(u32::MAX, 8, 12, &[], 8), truncated("tids", 25_769_803_770, 20));
        assert_eq!(read(2, 8, 12, &[4], 0), truncated("lengths", 8, 4));
        assert_eq!(read(2, 8, 12, &[], 7), truncated("values", 8, 7));
        assert_eq!(read(2, u32::MAX, 12, &[], 8), truncated("values", 4_294_967_295, 8));
        assert_eq!(read(2, 8, 12, &[], 9), Err(ProtocolError::Trailing { message, extra: 1 }));
    }

    #[test]
    fn values_that_do_not_fit_their_lengths_are_refused() {
        let values = |count, expected, found| Err(ProtocolError::Values { count, expected, found });
        assert_eq!(read(2, 7, 12, &[], 7), values(2, 6, 7));
        assert_eq!(read(2, 8, 12, &[4, 3], 8), values(2, 7, 8));
        assert_eq!(read(2, 8, 12, &[8, 0], 8), values(2, 8, 8));
        assert_eq!(read(2, 0, 12, &[], 0), values(2, 0, 0));
        assert_eq!(read(2, 8, 12, &[u32::MAX, 9], 8), values(2, 4_294_967_304, 8));
    }
}
