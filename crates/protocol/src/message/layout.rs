use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::Reader;

/// The size of the index; sent before its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pages that will be sent, including the meta page.
    pub blocks: u32,
    /// Elements in the graph: rows with equal values may share one.
    pub elements: u64,
    /// Rows in the graph.
    pub rows: u64,
}

impl Layout {
    pub(super) fn write(self, out: &mut BytesMut) {
        out.put_u32_le(self.blocks);
        out.put_u64_le(self.elements);
        out.put_u64_le(self.rows);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Layout", payload);
        Ok(Self { blocks: reader.u32("blocks")?, elements: reader.u64("elements")?, rows: reader.u64("rows")? })
    }
}
