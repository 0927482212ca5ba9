use pgvector::PAGE_SPECIAL_LEN;
pub(crate) use pgvector::{
    ELEMENT_DATUM, LINE_POINTER_LEN, MAX_SLOTS, NEIGHBOR_TIDS, PAGE_HEADER_LEN, PAGE_SIZE, PAGE_SPACE, TID_LEN,
};

/// The bytes of one page.
pub type PageBytes = [u8; PAGE_SIZE];

/// No block: the end of the chain of data pages, or no entry point.
pub const NO_BLOCK: u32 = u32::MAX;

/// Blocks in one file of a relation; the rest is in `FILE.1`, `FILE.2`, …
pub const SEGMENT_BLOCKS: u32 = 131_072;

/// Where the special area begins, on every page.
pub(crate) const SPECIAL: usize = PAGE_SIZE - PAGE_SPECIAL_LEN;
/// Page size and layout version 4 in one field.
pub(crate) const PAGE_SIZE_VERSION: u16 = PAGE_SIZE as u16 | 4;
/// Marks a page of an HNSW index.
pub(crate) const PAGE_ID: u16 = 0xFF90;

pub(crate) const META_MAGIC: u32 = 0xA953_A953;
pub(crate) const META_VERSION: u32 = 1;
/// Offsets of the fields of the meta page.
pub(crate) const META_MAGIC_AT: usize = PAGE_HEADER_LEN;
pub(crate) const META_VERSION_AT: usize = META_MAGIC_AT + 4;
pub(crate) const META_DIMS: usize = META_VERSION_AT + 4;
pub(crate) const META_M: usize = META_DIMS + 4;
pub(crate) const META_EF_CONSTRUCTION: usize = META_M + 2;
pub(crate) const META_ENTRY_BLOCK: usize = META_EF_CONSTRUCTION + 2;
pub(crate) const META_ENTRY_OFFSET: usize = META_ENTRY_BLOCK + 4;
pub(crate) const META_ENTRY_LEVEL: usize = META_ENTRY_OFFSET + 2;
pub(crate) const META_INSERT_PAGE: usize = META_ENTRY_LEVEL + 2;
/// `pd_lower` of the meta page must be behind its fields, or full-page images in WAL leave them out.
pub(crate) const META_LOWER: usize = META_INSERT_PAGE + 4;

pub(crate) const ELEMENT_TYPE: u8 = 1;
pub(crate) const NEIGHBOR_TYPE: u8 = 2;
/// Offsets in an element tuple, besides [`ELEMENT_DATUM`].
pub(crate) const ELEMENT_HEAP_TIDS: usize = 4;
pub(crate) const ELEMENT_NEIGHBOR_TID: usize = 64;

/// The version byte of the tuples that this crate writes, in elements and neighbors alike.
///
/// pgvector 0.8 checks that both are equal and writes 1 itself. Earlier releases write 0, and their VACUUM rewrites only
/// neighbor tuples, with 0: an index written with 1 would lose those lists after an upgrade. 0 is right for every release.
pub(crate) const TUPLE_VERSION: u8 = 0;

/// The smallest element tuple holds a value of one byte, or a sparsevec without entries.
const MIN_ELEMENT_LEN: usize = max_align(ELEMENT_DATUM + 9);
/// The most element tuples on a page.
pub(crate) const MAX_ELEMENTS_PER_PAGE: usize = PAGE_SPACE / (MIN_ELEMENT_LEN + LINE_POINTER_LEN);

/// Tuples begin and end at multiples of this: PostgreSQL's `MAXALIGN`.
pub(crate) const ALIGN: usize = 8;

pub(crate) const fn max_align(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

/// The length of the element tuple around a datum of this length.
pub(crate) const fn element_len(datum_len: usize) -> usize {
    max_align(ELEMENT_DATUM + datum_len)
}

/// The slots in the neighbor tuple of an element of this level.
pub(crate) fn neighbor_count(level: u8, m: u16) -> usize {
    (usize::from(level) + 2) * usize::from(m)
}

/// The slots of an element's list on a layer.
pub(crate) fn layer_slots(layer: u8, m: u16) -> usize {
    usize::from(m) * if layer == 0 { 2 } else { 1 }
}

/// The length of a neighbor tuple with this many slots.
pub(crate) const fn neighbor_len(count: usize) -> usize {
    max_align(NEIGHBOR_TIDS + TID_LEN * count)
}

/// Reads a little-endian field; the caller has checked that it lies within `bytes`.
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|&word| u128::from_ne_bytes(word) == 0) && rest.iter().all(|&byte| byte == 0)
}

pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}
