use bytes::{BufMut, BytesMut};

use crate::wire::Reader;
use crate::{ErrorReport, ProtocolError};

/// The builder refuses the build. Ends the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Milliseconds after which to try again; 0 = trying again does not help.
    pub retry_after_ms: u32,
    /// Why.
    pub report: ErrorReport,
}

impl Refuse {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u32_le(self.retry_after_ms);
        self.report.write(out);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Refuse", payload);
        Ok(Self { retry_after_ms: reader.u32("retry_after_ms")?, report: ErrorReport::read_from(&mut reader)? })
    }
}
