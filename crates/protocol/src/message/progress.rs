use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::Reader;

/// The progress of the build; sent at least once a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// A [`Phase`] as a number; later versions of builders may have more of them.
    pub phase: u8,
    /// Steps of the phase that are done: rows, elements or pages.
    pub done: u64,
    /// Steps of the phase; 0 = unknown.
    pub total: u64,
}

impl Progress {
    pub(super) fn write(self, out: &mut BytesMut) {
        out.put_u8(self.phase);
        out.put_u64_le(self.done);
        out.put_u64_le(self.total);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Progress", payload);
        Ok(Self { phase: reader.u8("phase")?, done: reader.u64("done")?, total: reader.u64("total")? })
    }
}

/// What a builder is doing. A check uses the first three phases: its pages are received, then verified, then searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Receiving rows; steps are rows.
    Rows = 1,
    /// Finding candidates for all neighbor lists; steps are elements.
    Graph = 2,
    /// Selecting neighbors, measuring and repairing the graph; steps are elements.
    Repair = 3,
    /// Ordering elements for the pages; steps are elements.
    Order = 4,
    /// Sending pages; steps are pages.
    Pages = 5,
}

impl Phase {
    /// The phase with this number; `None` for an unknown one, which is not an error.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Rows,
            2 => Self::Graph,
            3 => Self::Repair,
            4 => Self::Order,
            5 => Self::Pages,
            _ => return None,
        })
    }
}
