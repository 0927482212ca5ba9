use bytes::{BufMut, BytesMut};

use crate::wire::Reader;
use crate::{MAX_CONTROL_PAYLOAD, ProtocolError};

/// At the end of a [`Hello`](crate::Hello): asks to check the pages of an index instead of building one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Pages of the index that will be sent, at least 1.
    pub blocks: u32,
    /// Elements to search for; 0 = none.
    pub sample: u32,
    /// Candidates that each search keeps.
    pub ef_search: u16,
}

impl Check {
    pub(super) fn write(self, out: &mut BytesMut) {
        out.put_u32_le(self.blocks);
        out.put_u32_le(self.sample);
        out.put_u16_le(self.ef_search);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, ProtocolError> {
        let Some(blocks) = reader.u32_or_end("blocks")? else { return Ok(None) };
        Ok(Some(Self { blocks, sample: reader.u32("sample")?, ef_search: reader.u16("ef_search")? }))
    }
}

/// All pages of the index have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfIndex {
    /// The pages in all IndexPages frames.
    pub blocks: u32,
    /// The [`StreamChecksum`](crate::StreamChecksum) of all IndexPages frames.
    pub checksum: u32,
}

impl EndOfIndex {
    pub(super) fn write(self, out: &mut BytesMut) {
        out.put_u32_le(self.blocks);
        out.put_u32_le(self.checksum);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("EndOfIndex", payload);
        Ok(Self { blocks: reader.u32("blocks")?, checksum: reader.u32("checksum")? })
    }
}

/// The most bytes of an error's text.
const MAX_ERROR_BYTES: usize = 500;
/// The most errors that are sent: all their texts fit into a frame.
const MAX_ERRORS: usize = MAX_CONTROL_PAYLOAD / (2 * (MAX_ERROR_BYTES + 2));

/// The result of a check: what the builder found in the pages of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// `m` of the index; 0 without a meta page.
    pub m: u16,
    /// Elements in use.
    pub live: u64,
    /// Elements that VACUUM has deleted.
    pub deleted: u64,
    /// Rows: heap TIDs of elements in use.
    pub rows: u64,
    /// Rows that share an element with an earlier row.
    pub duplicates: u64,
    /// Elements in use whose list at layer 0 is not full.
    pub not_full: u64,
    /// Elements in use that can be reached from the entry point at layer 0.
    pub reachable: u64,
    /// Elements that were searched for.
    pub sampled: u32,
    /// Recall@10 of these searches, in millionths; `u32::MAX` if there were none.
    pub recall_ppm: u32,
    /// Errors in the pages.
    pub errors: u64,
    /// Texts of the first errors, which depend on the builder's version.
    pub first_errors: Vec<String>,
}

impl Findings {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u16_le(self.m);
        for number in [self.live, self.deleted, self.rows, self.duplicates, self.not_full, self.reachable] {
            out.put_u64_le(number);
        }
        out.put_u32_le(self.sampled);
        out.put_u32_le(self.recall_ppm);
        out.put_u64_le(self.errors);
        let first = &self.first_errors[..self.first_errors.len().min(MAX_ERRORS)];
        out.put_u16_le(u16::try_from(first.len()).expect("at most MAX_ERRORS"));
        for error in first {
            crate::wire::put_text(out, &error[..error.floor_char_boundary(MAX_ERROR_BYTES)]);
        }
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Findings", payload);
        Ok(Self {
            m: reader.u16("m")?,
            live: reader.u64("live")?,
            deleted: reader.u64("deleted")?,
            rows: reader.u64("rows")?,
            duplicates: reader.u64("duplicates")?,
            not_full: reader.u64("not_full")?,
            reachable: reader.u64("reachable")?,
            sampled: reader.u32("sampled")?,
            recall_ppm: reader.u32("recall_ppm")?,
            errors: reader.u64("errors")?,
            first_errors: {
                // Fails at the first missing text: no memory is allocated for a mere count.
                let count = reader.u16("first_errors")?;
                (0..count).map(|_| reader.text("first_errors")).collect::<Result<_, _>>()?
            },
        })
    }
}
