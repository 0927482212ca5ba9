use bytes::{BufMut, BytesMut};

use crate::{MAX_TEXT_BYTES, ProtocolError, SqlState};

/// Reads the fields of a payload in order; errors name the field that is truncated or invalid.
pub(crate) struct Reader<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'static str, payload: &'a [u8]) -> Self {
        Self { message, rest: payload }
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ProtocolError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.truncated(field, N as u64));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, ProtocolError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, ProtocolError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, ProtocolError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, ProtocolError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn sqlstate(&mut self, field: &'static str) -> Result<SqlState, ProtocolError> {
        let code = self.array(field)?;
        SqlState::new(code).ok_or(ProtocolError::SqlState(code))
    }

    /// A text without NUL, as texts are C strings in PostgreSQL.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<String, ProtocolError> {
        let len = self.u16(field)?;
        let Some((bytes, rest)) = self.rest.split_at_checked(usize::from(len)) else {
            return Err(self.truncated(field, u64::from(len)));
        };
        self.rest = rest;
        match std::str::from_utf8(bytes) {
            Ok(text) if !bytes.contains(&0) => Ok(text.to_owned()),
            _ => Err(ProtocolError::Text { message: self.message, field }),
        }
    }

    /// A text at the end that older versions leave out: empty then.
    pub(crate) fn text_or_end(&mut self, field: &'static str) -> Result<String, ProtocolError> {
        if self.rest.is_empty() { Ok(String::new()) } else { self.text(field) }
    }

    /// A number at the end that older versions leave out: `None` then.
    pub(crate) fn u32_or_end(&mut self, field: &'static str) -> Result<Option<u32>, ProtocolError> {
        if self.rest.is_empty() { Ok(None) } else { self.u32(field).map(Some) }
    }

    fn truncated(&self, field: &'static str, needed: u64) -> ProtocolError {
        ProtocolError::Truncated { message: self.message, field, needed, left: self.rest.len() }
    }
}

/// Appends a text, truncated at a NUL and at [`MAX_TEXT_BYTES`], between two characters.
pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    out.put_u16_le(u16::try_from(text.len()).expect("at most MAX_TEXT_BYTES"));
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::{Reader, put_text};
    use crate::{MAX_TEXT_BYTES, ProtocolError};

    fn sent(text: &str) -> String {
        let mut out = BytesMut::new();
        put_text(&mut out, text);
        Reader::new("test", &out).text("text").unwrap()
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(sent("möbel"), "möbel");
        assert_eq!(sent(&"ö".repeat(MAX_TEXT_BYTES)).len(), MAX_TEXT_BYTES);
        assert_eq!(sent(&format!("x{}", "ö".repeat(MAX_TEXT_BYTES))).len(), MAX_TEXT_BYTES - 1);
        assert_eq!(sent("seen\0hidden"), "seen");
    }

    #[test]
    fn what_is_not_text_is_refused() {
        let read = |bytes: &[u8]| Reader::new("test", bytes).text("text").unwrap_err();
        let text = ProtocolError::Text { message: "test", field: "text" };
        assert_eq!(read(b"\x02\x00\xff\xfe"), text);
        assert_eq!(read(b"\x02\x00a\x00"), text);
        let truncated = |needed, left| ProtocolError::Truncated { message: "test", field: "text", needed, left };
        assert_eq!(read(b"\x03\x00ab"), truncated(3, 2));
        assert_eq!(read(b"\x03"), truncated(2, 1));
    }
}
