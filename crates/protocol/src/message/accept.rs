use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// The builder accepts the build: rows may be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// The protocol version that both sides use from now on.
    pub protocol: u16,
    /// The client's capabilities that the builder also has.
    pub capabilities: u64,
    /// The session's number in the builder's logs and status.
    pub session: u64,
    /// Bytes of memory reserved for the build; 0 = unknown.
    pub memory_reserved: u64,
    /// Threads that build; 0 = unknown.
    pub threads: u32,
    /// The builder's name and version.
    pub builder_version: String,
    /// A remark for the user about this build; empty = none.
    pub remark: String,
}

impl Accept {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u16_le(self.protocol);
        out.put_u64_le(self.capabilities);
        out.put_u64_le(self.session);
        out.put_u64_le(self.memory_reserved);
        out.put_u32_le(self.threads);
        put_text(out, &self.builder_version);
        put_text(out, &self.remark);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Accept", payload);
        Ok(Self {
            protocol: reader.u16("protocol")?,
            capabilities: reader.u64("capabilities")?,
            session: reader.u64("session")?,
            memory_reserved: reader.u64("memory_reserved")?,
            threads: reader.u32("threads")?,
            builder_version: reader.text("builder_version")?,
            remark: reader.text_or_end("remark")?,
        })
    }
}
