use crate::format::{ALIGN, PAGE_SIZE, TID_LEN, neighbor_count, neighbor_len};
use crate::{Item, NeighborTuple, Page, PageBytes, PageSource, Tid, Tuple};

/// A source of neighbor tuples: pages that are read each time, or [`KeptNeighbors`].
pub trait NeighborSource {
    /// The neighbor tuples of a block: where they are in memory, else read into `buffer`; none if that fails.
    fn neighbors<'a>(&'a mut self, block: u32, buffer: &'a mut Vec<u8>) -> BlockNeighbors<'a>;

    /// As [`PageSource::pause`].
    fn pause(&mut self) {}
}

impl<S: PageSource + ?Sized> NeighborSource for S {
    fn neighbors<'a>(&'a mut self, block: u32, buffer: &'a mut Vec<u8>) -> BlockNeighbors<'a> {
        let mut page: PageBytes = [0; PAGE_SIZE];
        buffer.clear();
        // The first stage of a verification has reported pages that cannot be read.
        if let Ok(bytes) = self.read(block, &mut page)
            && let Ok(page) = Page::parse(block, bytes)
        {
            for item in page.items().filter_map(Result::ok) {
                if let Ok(Tuple::Neighbor(tuple)) = Tuple::parse(&item) {
                    append(buffer, &tuple);
                }
            }
        }
        BlockNeighbors { block, records: buffer }
    }

    fn pause(&mut self) {
        PageSource::pause(self);
    }
}

/// The neighbor tuples of a block, in the order of their line pointers.
#[derive(Clone, Copy, Debug)]
pub struct BlockNeighbors<'a> {
    block: u32,
    /// By tuple: its offset and its length, 2 bytes each, and its bytes.
    records: &'a [u8],
}

impl<'a> BlockNeighbors<'a> {
    pub(crate) fn tuples(self) -> impl Iterator<Item = NeighborTuple<'a>> {
        let mut rest = self.records;
        std::iter::from_fn(move || {
            let (&[offset0, offset1, len0, len1], after) = rest.split_first_chunk()?;
            let (bytes, after) = after.split_at_checked(u16::from_le_bytes([len0, len1]).into())?;
            rest = after;
            let tid = Tid::new(self.block, u16::from_le_bytes([offset0, offset1]));
            match Tuple::parse(&Item { tid, start: 0, bytes }) {
                Ok(Tuple::Neighbor(tuple)) => Some(tuple),
                _ => None,
            }
        })
    }
}

/// Bytes of a record before its tuple.
const RECORD_HEAD: usize = 4;

/// Appends a tuple to the records of its block.
fn append(records: &mut Vec<u8>, tuple: &NeighborTuple<'_>) {
    records.extend(tuple.tid().offset.to_le_bytes());
    records.extend((tuple.bytes().len() as u16).to_le_bytes());
    records.extend(tuple.bytes());
}

/// The neighbor tuples of an index in memory: a fraction of its pages.
#[derive(Debug, Default)]
pub struct KeptNeighbors {
    by_block: Vec<Box<[u8]>>,
    /// The records of the block that is being read.
    current: Vec<u8>,
}

impl KeptNeighbors {
    /// Bytes for a block besides its records: where they are, and what the allocator adds.
    pub(crate) const PER_BLOCK: usize = 32;

    /// Roughly the memory in bytes for an index of this size; at most the size of the pages plus 32 bytes per block.
    #[must_use]
    pub fn bytes(elements: u64, m: u16, blocks: u32) -> u64 {
        // On average, an element is on 1 / (m - 1) upper layers with m slots each, and half the alignment is padding.
        let layer = TID_LEN * usize::from(m) + ALIGN / 2;
        let upper = layer.div_ceil(usize::from(m).max(2) - 1);
        let element = RECORD_HEAD + neighbor_len(neighbor_count(0, m)) + upper;
        let records = elements.saturating_mul(element as u64).min(u64::from(blocks) * PAGE_SIZE as u64);
        records + u64::from(blocks) * Self::PER_BLOCK as u64
    }

    /// The neighbor tuples of a block.
    #[must_use]
    pub fn block(&self, block: u32) -> BlockNeighbors<'_> {
        BlockNeighbors { block, records: self.by_block.get(block as usize).map_or(&[], |records| records) }
    }

    /// Adds a tuple of the block that is being read.
    pub(crate) fn add(&mut self, tuple: &NeighborTuple<'_>) {
        append(&mut self.current, tuple);
    }

    /// Ends a block; blocks come in order. Returns the bytes that its records take.
    pub(crate) fn end_block(&mut self) -> usize {
        self.by_block.push(self.current.as_slice().into());
        self.current.clear();
        self.by_block.last().map_or(0, |records| records.len())
    }
}
