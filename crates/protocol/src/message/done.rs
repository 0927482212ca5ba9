use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::Reader;

/// All pages have been sent: totals, and the quality of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows in the index.
    pub rows: u64,
    /// Elements in the index.
    pub elements: u64,
    /// Elements that could not be reached from the entry point and were linked by the builder.
    pub relinked: u64,
    /// Elements that still cannot be reached.
    pub unreachable: u64,
    /// Self-recall in millionths: the fraction of a sample of elements that a search for their own value finds.
    pub self_recall_ppm: u32,
    /// Milliseconds from Accept to Done.
    pub build_ms: u64,
    /// Pages sent.
    pub blocks: u32,
    /// The [`StreamChecksum`](crate::StreamChecksum) of all Pages frames.
    pub checksum: u32,
    /// Recall@10 of searches with ef_search 40, in millionths, for a sample of rows and of values between rows. Older builders
    /// leave it out.
    pub recall_ppm: Option<u32>,
}

impl Done {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u64_le(self.rows);
        out.put_u64_le(self.elements);
        out.put_u64_le(self.relinked);
        out.put_u64_le(self.unreachable);
        out.put_u32_le(self.self_recall_ppm);
        out.put_u64_le(self.build_ms);
        out.put_u32_le(self.blocks);
        out.put_u32_le(self.checksum);
        if let Some(recall_ppm) = self.recall_ppm {
            out.put_u32_le(recall_ppm);
        }
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Done", payload);
        Ok(Self {
            rows: reader.u64("rows")?,
            elements: reader.u64("elements")?,
            relinked: reader.u64("relinked")?,
            unreachable: reader.u64("unreachable")?,
            self_recall_ppm: reader.u32("self_recall_ppm")?,
            build_ms: reader.u64("build_ms")?,
            blocks: reader.u32("blocks")?,
            checksum: reader.u32("checksum")?,
            recall_ppm: reader.u32_or_end("recall_ppm")?,
        })
    }
}
