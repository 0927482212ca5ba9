//! The values of all elements, in chunks that never move.

use std::sync::OnceLock;

use graph::ElementValues;

use super::spool::{Piece, Spool, Storage};
use crate::BuildError;

/// Elements per chunk: enough to keep all threads busy, few enough to start soon.
pub(crate) const CHUNK: usize = 512;

/// The values of all elements, appended in chunks while other threads read published chunks. Chunks never move, so a
/// value's address is valid as long as the store.
pub(crate) struct ValueStore {
    chunks: boxcar::Vec<Chunk>,
    /// The position of each element's value; unset while elements are numbered in order of arrival.
    order: OnceLock<Vec<u32>>,
    storage: Storage,
    spool: Spool,
}

/// [`CHUNK`] concatenated values (fewer in the last chunk).
#[derive(Default)]
pub(crate) struct Chunk {
    bytes: Bytes,
    ends: Ends,
    /// The number of values.
    len: usize,
}

/// Where the bytes of a chunk are.
pub(crate) enum Bytes {
    Memory(Vec<u8>),
    Spool(Piece),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl Bytes {
    pub(crate) fn get(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Spool(piece) => piece.bytes(),
        }
    }
}

/// Where the values of a chunk end.
enum Ends {
    /// All have this many bytes.
    Every(usize),
    At(Vec<u32>),
}

impl Default for Ends {
    fn default() -> Self {
        Self::At(Vec::new())
    }
}

impl Chunk {
    /// An empty chunk for values of `value_len` bytes, or of varying length for `None`.
    pub(crate) fn new(value_len: Option<usize>) -> Self {
        match value_len {
            Some(len) => Self { ends: Ends::Every(len), ..Self::default() },
            None => Self::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes room for copies of these values behind the others, and returns it.
    pub(crate) fn append(&mut self, values: &[&[u8]]) -> Vec<&mut [u8]> {
        // Only published chunks are in the spool.
        let Bytes::Memory(bytes) = &mut self.bytes else { return Vec::new() };
        let start = match &mut self.ends {
            Ends::Every(len) => {
                // The system clears this memory when it is first written, whichever thread does that.
                if bytes.is_empty() {
                    *bytes = vec![0; *len * CHUNK];
                }
                self.len * *len
            }
            Ends::At(ends) => {
                let start = bytes.len();
                let mut end = start;
                // This fits: a sparse value has at most 8 KiB, and a chunk has 512 values.
                ends.extend(values.iter().map(|value| {
                    end += value.len();
                    end as u32
                }));
                bytes.resize(end, 0);
                start
            }
        };
        self.len += values.len();
        let mut rest = &mut bytes[start..];
        values.iter().map(|value| rest.split_off_mut(..value.len()).unwrap_or_default()).collect()
    }

    pub(crate) fn value(&self, at: usize) -> &[u8] {
        let bytes = self.bytes.get();
        match &self.ends {
            Ends::Every(len) => &bytes[at * len..(at + 1) * len],
            Ends::At(ends) => {
                let start = if at == 0 { 0 } else { ends[at - 1] as usize };
                &bytes[start..ends[at] as usize]
            }
        }
    }
}

impl ValueStore {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { chunks: boxcar::Vec::new(), order: OnceLock::new(), storage, spool: Spool::default() }
    }

    /// Stores bytes, such as codes, where new values go: in memory or in the spool.
    pub(crate) fn stow(&self, bytes: Vec<u8>) -> Result<Bytes, BuildError> {
        match self.storage.next() {
            Some(dir) => Ok(Bytes::Spool(self.spool.write(dir, &bytes)?)),
            None => Ok(Bytes::Memory(bytes)),
        }
    }

    /// Makes a full chunk readable, in the spool if values go there now.
    pub(crate) fn keep(&self, mut chunk: Chunk) -> Result<(), BuildError> {
        if let Bytes::Memory(bytes) = std::mem::take(&mut chunk.bytes) {
            chunk.bytes = self.stow(bytes)?;
        }
        self.publish(chunk);
        Ok(())
    }

    /// Numbers the elements anew, once: element `n` is the one that was `order[n]`. The values stay where they are.
    pub(crate) fn renumber(&self, order: Vec<u32>) {
        let is_first = self.order.set(order).is_ok();
        debug_assert!(is_first, "renumbered twice");
    }

    /// Makes a chunk readable. Only the last chunk may be short.
    pub(crate) fn publish(&self, chunk: Chunk) {
        self.chunks.push(chunk);
    }
}

impl ElementValues for ValueStore {
    fn value(&self, element: u32) -> &[u8] {
        let element = self.order.get().map_or(element, |order| order[element as usize]) as usize;
        self.chunks[element / CHUNK].value(element % CHUNK)
    }
}
