/// The size of a page in bytes: PostgreSQL's default `BLCKSZ`, the only one supported.
pub const PAGE_SIZE: usize = 8192;
/// The page header in bytes; line pointers follow it.
pub const PAGE_HEADER_LEN: usize = 24;
/// A line pointer in bytes; each tuple has one.
pub const LINE_POINTER_LEN: usize = 4;
/// The special area in bytes, at the end of every page of an HNSW index.
pub const PAGE_SPECIAL_LEN: usize = 8;
/// The bytes of a page for tuples and their line pointers.
pub const PAGE_SPACE: usize = PAGE_SIZE - PAGE_HEADER_LEN - PAGE_SPECIAL_LEN;
/// A TID in bytes: block and offset, of a row or of a tuple of the index.
pub const TID_LEN: usize = 6;
/// Offset of the value in an element tuple: pgvector's `HnswElementTupleData`.
pub const ELEMENT_DATUM: usize = 72;
/// Offset of the first TID in a neighbor tuple.
pub const NEIGHBOR_TIDS: usize = 4;
/// The most slots of a neighbor tuple.
pub const MAX_SLOTS: usize = (PAGE_SPACE - LINE_POINTER_LEN - NEIGHBOR_TIDS) / TID_LEN;

#[cfg(test)]
mod tests {
    use super::PAGE_SPACE;

    #[test]
    fn tuples_have_the_page_without_header_and_special_area() {
        assert_eq!(PAGE_SPACE, 8160);
    }
}
