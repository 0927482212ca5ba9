use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::Reader;

/// All rows have been sent. From the totals the builder sees whether it has received all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfTuples {
    /// The rows in all Tuples frames.
    pub rows: u64,
    /// The [`StreamChecksum`](crate::StreamChecksum) of all Tuples frames.
    pub checksum: u32,
}

impl EndOfTuples {
    pub(super) fn write(self, out: &mut BytesMut) {
        out.put_u64_le(self.rows);
        out.put_u32_le(self.checksum);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("EndOfTuples", payload);
        Ok(Self { rows: reader.u64("rows")?, checksum: reader.u32("checksum")? })
    }
}
