use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{ProtocolError, kind, max_payload};

/// The length of a header: kind u8, flags u8, reserved u16, payload length u32, crc32c u32.
pub const HEADER_BYTES: usize = 12;
/// A receiver that does not know the kind may skip the frame.
pub const FLAG_OPTIONAL: u8 = 1;
/// A Tuples frame contains the length of each value.
pub const FLAG_LENGTHS: u8 = 2;

/// The bytes of the header that the checksum covers: all but itself.
const SUMMED: usize = HEADER_BYTES - 4;

/// A frame with a valid header and checksum; its payload has not been decoded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// One of [`kind`], or an unknown one.
    pub kind: u8,
    /// [`FLAG_OPTIONAL`], [`FLAG_LENGTHS`].
    pub flags: u8,
    /// The checksum in the header, input of the [`StreamChecksum`](crate::StreamChecksum).
    pub crc: u32,
    /// The payload, a slice of the buffer it was decoded from.
    pub payload: Bytes,
}

impl Frame {
    /// Removes the next frame from the front of the received bytes. `None` if more bytes are needed, for which space is reserved.
    ///
    /// # Errors
    /// An invalid header (as soon as it is complete, whatever length it claims) or a wrong checksum.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
        Self::decode_within(buffer, usize::MAX)
    }

    /// [`Frame::decode`] with payloads of at most `most` bytes, in addition to the limit of their kind.
    ///
    /// # Errors
    /// Those of [`Frame::decode`].
    pub fn decode_within(buffer: &mut BytesMut, most: usize) -> Result<Option<Frame>, ProtocolError> {
        let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else {
            buffer.reserve(HEADER_BYTES - buffer.len());
            return Ok(None);
        };
        let &[kind, flags, r0, r1, l0, l1, l2, l3, c0, c1, c2, c3] = header;
        let reserved = u16::from_le_bytes([r0, r1]);
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let crc = u32::from_le_bytes([c0, c1, c2, c3]);

        if reserved != 0 {
            return Err(ProtocolError::Reserved(reserved));
        }
        let known = if kind == kind::TUPLES { FLAG_OPTIONAL | FLAG_LENGTHS } else { FLAG_OPTIONAL };
        if flags & !known != 0 {
            return Err(ProtocolError::Flags { kind, flags });
        }
        let limit = max_payload(kind).min(most);
        let payload_len = length as usize;
        if payload_len > limit {
            return Err(ProtocolError::TooLong { kind, length, limit });
        }

        let total = HEADER_BYTES + payload_len;
        if buffer.len() < total {
            buffer.reserve(total - buffer.len());
            return Ok(None);
        }
        let header_sum = crc32c::crc32c(&buffer[..SUMMED]);
        let computed = crc32c::crc32c_append(header_sum, &buffer[HEADER_BYTES..total]);
        if computed != crc {
            return Err(ProtocolError::Checksum { kind, found: crc, computed });
        }
        buffer.advance(HEADER_BYTES);
        let payload = buffer.split_to(payload_len).freeze();
        Ok(Some(Frame { kind, flags, crc, payload }))
    }

    /// Appends the frame's bytes as they were received.
    pub fn encode(&self, out: &mut BytesMut) {
        let length = u32::try_from(self.payload.len()).expect("limited by max_payload");
        out.put_slice(&[self.kind, self.flags, 0, 0]);
        out.put_u32_le(length);
        out.put_u32_le(self.crc);
        out.put_slice(&self.payload);
    }

    /// Whether a receiver that does not know the kind may skip the frame.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.flags & FLAG_OPTIONAL != 0
    }
}

/// The header for a payload in parts, and its checksum. The payload must be within the limit of its kind.
pub(crate) fn header(kind: u8, flags: u8, parts: &[&[u8]]) -> ([u8; HEADER_BYTES], u32) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(length <= max_payload(kind), "{} payload of {length} bytes", kind::name(kind));
    let length = u32::try_from(length).expect("limited by max_payload");
    let mut header = [0; HEADER_BYTES];
    header[0] = kind;
    header[1] = flags;
    header[4..SUMMED].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c::crc32c(&header[..SUMMED]);
    let crc = parts.iter().fold(sum, |sum, part| crc32c::crc32c_append(sum, part));
    header[SUMMED..].copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// Appends a frame whose payload `write` appends.
pub(crate) fn put_frame(out: &mut BytesMut, kind: u8, flags: u8, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    write(out);
    let (head, payload) = out[start..].split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header(kind, flags, &[payload]).0);
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::{FLAG_LENGTHS, FLAG_OPTIONAL, Frame, HEADER_BYTES, put_frame};
    use crate::{MAX_CONTROL_PAYLOAD, MAX_DATA_PAYLOAD, ProtocolError, kind};

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        put_frame(&mut out, kind, flags, |out| out.put_slice(payload));
        out
    }

    #[test]
    fn frames_come_out_one_by_one_at_every_split() {
        let mut bytes = frame(kind::PROGRESS, 0, b"first");
        bytes.extend_from_slice(&frame(0x7f, FLAG_OPTIONAL, b""));
        for split in 0..=bytes.len() {
            let mut frames = Vec::new();
            let mut buffer = BytesMut::new();
            for part in [&bytes[..split], &bytes[split..]] {
                buffer.extend_from_slice(part);
                while let Some(frame) = Frame::decode(&mut buffer).unwrap() {
                    frames.push((frame.kind, frame.is_optional(), frame.payload));
                }
            }
            assert_eq!(frames, [(kind::PROGRESS, false, "first".into()), (0x7f, true, "".into())]);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = frame(kind::PROGRESS, 0, b"payload");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // With a longer length, the decoder waits for bytes that never come.
            let waits = matches!(Frame::decode(&mut bad), Ok(None));
            assert!(waits || Frame::decode(&mut bad).is_err(), "bit {bit}");
            assert!(!waits || (4..8).contains(&(bit / 8)), "bit {bit}");
        }
    }

    #[test]
    fn headers_are_refused_before_the_payload_comes() {
        let error = |kind, flags, length: u32| {
            let mut bytes = frame(kind, flags, b"");
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            let result = Frame::decode(&mut bytes);
            assert!(bytes.capacity() <= HEADER_BYTES + MAX_DATA_PAYLOAD);
            result.err()
        };
        let over = |kind, limit: usize| {
            let length = u32::try_from(limit).unwrap() + 1;
            assert_eq!(error(kind, 0, length - 1), None);
            assert_eq!(error(kind, 0, length), Some(ProtocolError::TooLong { kind, length, limit }));
            assert_eq!(error(kind, 0, u32::MAX), Some(ProtocolError::TooLong { kind, length: u32::MAX, limit }));
        };
        over(kind::HELLO, MAX_CONTROL_PAYLOAD);
        over(0x7f, MAX_CONTROL_PAYLOAD);
        over(kind::TUPLES, MAX_DATA_PAYLOAD);
        over(kind::PAGES, MAX_DATA_PAYLOAD);
        assert!(matches!(error(kind::PAGES, FLAG_LENGTHS, 0), Some(ProtocolError::Flags { .. })));
        assert!(matches!(error(kind::TUPLES, 4, 0), Some(ProtocolError::Flags { .. })));
        let mut bytes = frame(kind::HEARTBEAT, 0, b"");
        bytes[2] = 1;
        assert_eq!(Frame::decode(&mut bytes), Err(ProtocolError::Reserved(1)));
    }

    #[test]
    fn room_is_made_for_the_rest() {
        let mut buffer = BytesMut::from(&frame(kind::PAGES, 0, &[7; 1 << 20])[..HEADER_BYTES]);
        assert_eq!(Frame::decode(&mut buffer), Ok(None));
        assert!(buffer.capacity() >= HEADER_BYTES + (1 << 20));
    }
}
