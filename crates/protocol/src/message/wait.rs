use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// The build is queued. Sent again when the position changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The position in the queue, from 1; 0 = unknown.
    pub position: u32,
    /// What the build waits for.
    pub reason: String,
}

impl Wait {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u32_le(self.position);
        put_text(out, &self.reason);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Wait", payload);
        Ok(Self { position: reader.u32("position")?, reason: reader.text("reason")? })
    }
}
