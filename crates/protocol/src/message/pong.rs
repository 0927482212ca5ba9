use bytes::{BufMut, BytesMut};

use crate::ProtocolError;
use crate::wire::{Reader, put_text};

/// The answer to a Ping, with what the builder has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The newest protocol version the builder speaks.
    pub protocol: u16,
    /// Threads that build; 0 = unknown.
    pub threads: u32,
    /// Bytes of memory still free for builds; 0 = unknown.
    pub memory_free: u64,
    /// The builder's name and version.
    pub builder_version: String,
}

impl Pong {
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u16_le(self.protocol);
        out.put_u32_le(self.threads);
        out.put_u64_le(self.memory_free);
        put_text(out, &self.builder_version);
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Pong", payload);
        Ok(Self {
            protocol: reader.u16("protocol")?,
            threads: reader.u32("threads")?,
            memory_free: reader.u64("memory_free")?,
            builder_version: reader.text("builder_version")?,
        })
    }
}
