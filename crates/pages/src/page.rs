use crate::format::{
    ALIGN, LINE_POINTER_LEN, PAGE_HEADER_LEN, PAGE_ID, PAGE_SIZE_VERSION, SPECIAL, is_zero, read_u16, read_u32,
};
use crate::{PageBytes, PageError, Tid};

/// Whether the page is all zero, hence was never written.
#[must_use]
pub fn is_new(bytes: &PageBytes) -> bool {
    is_zero(bytes)
}

/// PostgreSQL's page header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The WAL position of the last change.
    pub lsn: u64,
    /// 0 without data checksums.
    pub checksum: u16,
    /// 0 in an HNSW index.
    pub flags: u16,
    /// End of the line pointers.
    pub lower: u16,
    /// Start of the tuples.
    pub upper: u16,
    /// Start of the special area.
    pub special: u16,
    /// 0 in an index.
    pub prune_xid: u32,
}

/// A page whose header and special area are those of an HNSW index.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    block: u32,
    bytes: &'a PageBytes,
    header: PageHeader,
}

impl<'a> Page<'a> {
    /// Checks header and special area.
    ///
    /// # Errors
    /// If the page is not one of an HNSW index: all zero, a constant field with another value, or areas that overlap.
    pub fn parse(block: u32, bytes: &'a PageBytes) -> Result<Self, PageError> {
        let header = PageHeader {
            lsn: u64::from(read_u32(bytes, 0)) << 32 | u64::from(read_u32(bytes, 4)),
            checksum: read_u16(bytes, 8),
            flags: read_u16(bytes, 10),
            lower: read_u16(bytes, 12),
            upper: read_u16(bytes, 14),
            special: read_u16(bytes, 16),
            prune_xid: read_u32(bytes, 20),
        };
        let constant = |field, at, expected: u16| {
            let found = read_u16(bytes, at);
            let error = PageError::Field { block, field, found: found.into(), expected: expected.into() };
            if found == expected { Ok(()) } else { Err(error) }
        };
        if is_new(bytes) {
            return Err(PageError::New { block });
        }
        constant("page size and version", 18, PAGE_SIZE_VERSION)?;
        constant("special", 16, SPECIAL as u16)?;
        let PageHeader { lower, upper, special, .. } = header;
        if !(PAGE_HEADER_LEN..=usize::from(upper)).contains(&usize::from(lower)) || upper > special {
            return Err(PageError::Bounds { block, lower, upper, special });
        }
        constant("page id", SPECIAL + 6, PAGE_ID)?;
        Ok(Self { block, bytes, header })
    }

    /// The block of the page.
    #[must_use]
    pub fn block(&self) -> u32 {
        self.block
    }

    /// All bytes of the page.
    #[must_use]
    pub fn bytes(&self) -> &'a PageBytes {
        self.bytes
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> PageHeader {
        self.header
    }

    /// The next data page; [`crate::NO_BLOCK`] on the last.
    #[must_use]
    pub fn next(&self) -> u32 {
        read_u32(self.bytes, SPECIAL)
    }

    /// The unused field of the special area.
    pub(crate) fn unused(&self) -> u16 {
        read_u16(self.bytes, SPECIAL + 4)
    }

    /// The bytes between line pointers and tuples, which should be zero.
    #[must_use]
    pub fn hole(&self) -> &'a [u8] {
        &self.bytes[usize::from(self.header.lower)..usize::from(self.header.upper)]
    }

    /// The number of line pointers of a data page.
    pub(crate) fn item_count(&self) -> u16 {
        (self.header.lower - PAGE_HEADER_LEN as u16) / LINE_POINTER_LEN as u16
    }

    /// The tuple at an offset from 1; `None` if there is none or its line pointer is invalid. Only [`Page::items`] detects
    /// overlaps.
    #[must_use]
    pub fn item(&self, offset: u16) -> Option<Item<'a>> {
        if offset == 0 || offset > self.item_count() {
            return None;
        }
        self.items().item(Tid::new(self.block, offset)).ok()
    }

    /// The tuples of a data page, in the order of their line pointers.
    #[must_use]
    pub fn items(&self) -> Items<'a> {
        Items { page: *self, offset: 0, taken: [0; SPECIAL / ALIGN / 64 + 1] }
    }
}

/// A tuple of any kind.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Its place in the index.
    pub tid: Tid,
    /// Its first byte in the page.
    pub start: usize,
    /// Its bytes, padding included.
    pub bytes: &'a [u8],
}

/// An iterator over the tuples of a page; see [`Page::items`]. An invalid line pointer gives an error, and iteration continues.
pub struct Items<'a> {
    page: Page<'a>,
    offset: u16,
    /// A bit for each aligned position that a tuple so far occupies.
    taken: [u64; SPECIAL / ALIGN / 64 + 1],
}

impl<'a> Items<'a> {
    fn item(&mut self, tid: Tid) -> Result<Item<'a>, PageError> {
        let at = PAGE_HEADER_LEN + LINE_POINTER_LEN * usize::from(tid.offset - 1);
        let pointer = read_u32(self.page.bytes, at);
        let (start, flags, len) = ((pointer & 0x7FFF) as usize, (pointer >> 15 & 3) as u8, (pointer >> 17) as usize);
        let upper = usize::from(self.page.header.upper);
        let aligned = start.is_multiple_of(ALIGN) && len.is_multiple_of(ALIGN);
        if flags != 1 || !aligned || len == 0 || start < upper || start + len > SPECIAL {
            return Err(PageError::LinePointer { tid, flags, start: start as u16, len: len as u16 });
        }
        let (first, end) = (start / ALIGN, (start + len) / ALIGN);
        for (word, taken) in (0..).step_by(64).zip(&mut self.taken).take(end.div_ceil(64)).skip(first / 64) {
            let ones = |count: usize| u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
            let own = ones((end - word).min(64)) & !ones(first.saturating_sub(word).min(64));
            if *taken & own != 0 {
                return Err(PageError::Overlap { tid });
            }
            *taken |= own;
        }
        Ok(Item { tid, start, bytes: &self.page.bytes[start..start + len] })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset == self.page.item_count() {
            return None;
        }
        self.offset += 1;
        Some(self.item(Tid::new(self.page.block, self.offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::Page;
    use crate::format::PAGE_SIZE;
    use crate::{NO_BLOCK, PageError, compose::Composer};

    fn page() -> [u8; PAGE_SIZE] {
        let mut bytes = [0; PAGE_SIZE];
        let mut composer = Composer::new(&mut bytes);
        composer.add(96)[0] = 1;
        composer.add(32)[0] = 2;
        composer.finish(NO_BLOCK);
        bytes
    }

    #[test]
    fn items_are_read_back() {
        let bytes = page();
        let page = Page::parse(1, &bytes).unwrap();
        let items: Vec<_> = page.items().map(Result::unwrap).map(|item| (item.start, item.bytes.len())).collect();
        assert_eq!(items, [(8088, 96), (8056, 32)]);
        // The line pointer of the format's worked example.
        assert_eq!(bytes[24..28], [0x98, 0x9f, 0xc0, 0]);
        assert!(page.hole().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn broken_pages_are_named() {
        let broken = |at: usize, value: u8| {
            let mut bytes = page();
            bytes[at] = value;
            Page::parse(1, &bytes).map(|page| page.items().find_map(Result::err))
        };
        assert!(matches!(broken(18, 5), Err(PageError::Field { field: "page size and version", .. })));
        assert!(matches!(broken(13, 0xFF), Err(PageError::Bounds { .. })));
        assert!(matches!(broken(8191, 0), Err(PageError::Field { field: "page id", .. })));
        assert!(matches!(broken(28, 0x7C), Ok(Some(PageError::LinePointer { .. }))));
        assert!(matches!(broken(24, 0x80), Ok(Some(PageError::Overlap { .. }))));
        assert!(matches!(Page::parse(1, &[0; PAGE_SIZE]), Err(PageError::New { block: 1 })));
    }

    #[test]
    fn tuples_that_share_a_byte_are_found() {
        let mut bytes = page();
        let upper = 6144u16;
        bytes[14..16].copy_from_slice(&upper.to_le_bytes());
        let mut random = fastrand::Rng::with_seed(1);
        let mut tuple = || {
            let start = u32::from(upper) + random.u32(..250) * 8;
            (start, (random.u32(1..=90) * 8).min(8184 - start))
        };
        let mut overlaps = 0;
        for _ in 0..3000 {
            let [a, b] = [tuple(), tuple()];
            for (at, (start, len)) in [(24, a), (28, b)] {
                bytes[at..at + 4].copy_from_slice(&(start | 1 << 15 | len << 17).to_le_bytes());
            }
            let found = Page::parse(1, &bytes).unwrap().items().find_map(Result::err);
            let expected = a.0 < b.0 + b.1 && b.0 < a.0 + a.1;
            assert_eq!(matches!(found, Some(PageError::Overlap { .. })), expected, "{a:?} {b:?} {found:?}");
            overlaps += u32::from(expected);
        }
        assert!((100..2900).contains(&overlaps), "{overlaps}");
    }
}
