use bytes::{BufMut, Bytes, BytesMut};

use crate::frame::{HEADER_BYTES, header};
use crate::wire::Reader;
use crate::{MAX_PAGES_PER_FRAME, PAGE_SIZE, ProtocolError, kind};

/// Bytes of the payload before the pages.
const HEAD_BYTES: usize = 8;

/// Consecutive pages of the index. The first frame starts at block 0, each later one where the previous one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The block number of the first page.
    pub first_block: u32,
    /// The pages, [`PAGE_SIZE`] bytes each: a slice of the frame's payload, at least one page.
    pub pages: Bytes,
}

impl Pages {
    /// The number of pages.
    #[must_use]
    pub fn page_count(&self) -> u32 {
        u32::try_from(self.pages.len() / PAGE_SIZE).unwrap_or(u32::MAX)
    }

    /// The pages one by one with their block numbers.
    pub fn blocks(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (self.first_block..).zip(self.pages.chunks_exact(PAGE_SIZE))
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_slice(&head(self.first_block, &self.pages));
        out.put_slice(&self.pages);
    }

    pub(super) fn read(message: &'static str, payload: &Bytes) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(message, payload);
        let first_block = reader.u32("first_block")?;
        let count = reader.u32("count")?;
        if count == 0 {
            return Err(ProtocolError::Empty { message });
        }
        if first_block.checked_add(count).is_none() {
            return Err(ProtocolError::Blocks { first_block, count });
        }
        let needed = u64::from(count) * PAGE_SIZE as u64;
        let left = payload.len() - HEAD_BYTES;
        if needed > left as u64 {
            return Err(ProtocolError::Truncated { message, field: "pages", needed, left });
        }
        if needed < left as u64 {
            return Err(ProtocolError::Trailing { message, extra: left - needed as usize });
        }
        Ok(Self { first_block, pages: payload.slice(HEAD_BYTES..) })
    }
}

/// A Pages frame in two parts, so that the pages are not copied: the head, the given pages, and the checksum for the
/// [`StreamChecksum`](crate::StreamChecksum).
///
/// # Panics
/// If `pages` is not 1 to [`MAX_PAGES_PER_FRAME`] whole pages.
#[must_use]
pub fn encode_pages(first_block: u32, pages: impl Into<Bytes>) -> (Bytes, Bytes, u32) {
    encode(kind::PAGES, first_block, pages.into())
}

/// [`encode_pages`] for an IndexPages frame.
///
/// # Panics
/// Those of [`encode_pages`].
#[must_use]
pub fn encode_index_pages(first_block: u32, pages: impl Into<Bytes>) -> (Bytes, Bytes, u32) {
    encode(kind::INDEX_PAGES, first_block, pages.into())
}

fn encode(kind: u8, first_block: u32, pages: Bytes) -> (Bytes, Bytes, u32) {
    let head = head(first_block, &pages);
    let (header, crc) = header(kind, 0, &[&head, &pages]);
    let mut out = BytesMut::with_capacity(HEADER_BYTES + HEAD_BYTES);
    out.put_slice(&header);
    out.put_slice(&head);
    (out.freeze(), pages, crc)
}

fn head(first_block: u32, pages: &[u8]) -> [u8; HEAD_BYTES] {
    let count = pages.len() / PAGE_SIZE;
    let whole = pages.len().is_multiple_of(PAGE_SIZE);
    assert!(whole && (1..=MAX_PAGES_PER_FRAME).contains(&count), "{} bytes are not pages of a frame", pages.len());
    let [f0, f1, f2, f3] = first_block.to_le_bytes();
    let [c0, c1, c2, c3] = u32::try_from(count).expect("at most MAX_PAGES_PER_FRAME").to_le_bytes();
    [f0, f1, f2, f3, c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::{Pages, encode_pages};
    use crate::{BuilderMessage, Frame, MAX_PAGES_PER_FRAME, PAGE_SIZE, ProtocolError};

    #[test]
    fn a_full_frame_fits_and_is_not_copied() {
        let pages = vec![1; MAX_PAGES_PER_FRAME * PAGE_SIZE];
        let at = pages.as_ptr();
        let (head, body, _) = encode_pages(0, pages);
        assert_eq!(body.as_ptr(), at);
        let mut bytes = BytesMut::from(&[head, body].concat()[..]);
        let frame = Frame::decode(&mut bytes).unwrap().unwrap();
        let Ok(Some(BuilderMessage::Pages(pages))) = BuilderMessage::from_frame(&frame) else { panic!("not pages") };
        assert_eq!(pages.page_count() as usize, MAX_PAGES_PER_FRAME);
        assert_eq!(pages.pages.as_ptr(), frame.payload[8..].as_ptr());
        assert_eq!(pages.blocks().last().unwrap().0, 254);
    }

    #[test]
    #[should_panic(expected = "are not pages")]
    fn a_page_too_many_is_a_defect() {
        let _ = encode_pages(0, vec![0; (MAX_PAGES_PER_FRAME + 1) * PAGE_SIZE]);
    }

    #[test]
    fn counts_that_do_not_fit_are_refused() {
        let read = |first_block: u32, count: u32, bytes: usize| {
            let mut payload = BytesMut::new();
            payload.put_u32_le(first_block);
            payload.put_u32_le(count);
            payload.put_bytes(0, bytes);
            Pages::read("Pages", &payload.freeze()).unwrap_err()
        };
        let message = "Pages";
        assert_eq!(read(0, 0, 0), ProtocolError::Empty { message });
        assert_eq!(read(0, 1, PAGE_SIZE + 1), ProtocolError::Trailing { message, extra: 1 });
        let truncated = |count: u64, left| ProtocolError::Truncated {
            message,
            field: "pages",
            needed: count * PAGE_SIZE as u64,
            left,
        };
        assert_eq!(read(0, 1, PAGE_SIZE - 1), truncated(1, PAGE_SIZE - 1));
        assert_eq!(read(0, u32::MAX, PAGE_SIZE), truncated(u64::from(u32::MAX), PAGE_SIZE));
        assert_eq!(read(0, 1 << 19, 0), truncated(1 << 19, 0));
        assert_eq!(read(u32::MAX, 1, PAGE_SIZE), ProtocolError::Blocks { first_block: u32::MAX, count: 1 });
    }
}
