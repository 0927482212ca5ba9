use crate::PageBytes;
use crate::format::{LINE_POINTER_LEN, PAGE_HEADER_LEN, PAGE_ID, PAGE_SIZE_VERSION, SPECIAL, put};

/// A data page being filled: line pointers grow up, tuples grow down.
pub(crate) struct Composer<'a> {
    page: &'a mut PageBytes,
    lower: usize,
    upper: usize,
}

impl<'a> Composer<'a> {
    pub(crate) fn new(page: &'a mut PageBytes) -> Self {
        page.fill(0);
        Self { page, lower: PAGE_HEADER_LEN, upper: SPECIAL }
    }

    /// Adds a zeroed tuple for the caller to fill in. The layout ensures that it fits.
    pub(crate) fn add(&mut self, len: usize) -> &mut [u8] {
        const NORMAL: u32 = 1;
        self.upper -= len;
        let pointer = self.upper as u32 | NORMAL << 15 | (len as u32) << 17;
        put(self.page, self.lower, &pointer.to_le_bytes());
        self.lower += LINE_POINTER_LEN;
        &mut self.page[self.upper..self.upper + len]
    }

    /// Completes the page; `next` is the next data page.
    pub(crate) fn finish(self, next: u32) {
        frame(self.page, self.lower, self.upper, next);
    }
}

/// Writes the header and the special area. LSN and checksum stay 0: whoever stores the page sets them.
pub(crate) fn frame(page: &mut PageBytes, lower: usize, upper: usize, next: u32) {
    put(page, 12, &(lower as u16).to_le_bytes());
    put(page, 14, &(upper as u16).to_le_bytes());
    put(page, 16, &(SPECIAL as u16).to_le_bytes());
    put(page, 18, &PAGE_SIZE_VERSION.to_le_bytes());
    put(page, SPECIAL, &next.to_le_bytes());
    put(page, SPECIAL + 6, &PAGE_ID.to_le_bytes());
}
