use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::{BuilderMessage, Frame, HEADER_BYTES, MAX_CONTROL_PAYLOAD, MAX_DATA_PAYLOAD, ProtocolError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The size of a read while the length of the frame is unknown.
const READ_BYTES: usize = 16 << 10;

/// The memory of payloads of at least this size is kept for later ones: the system would clear new memory for each, page by page.
const LARGE: usize = 64 << 10;

/// The most payloads whose memory is kept for reuse: more than are usually in flight from a connection to its build, which are four that the
/// engine takes at once, four in the queue, and one that waits for the queue.
const SPARE: usize = 10;

/// Why a frame could not be read.
#[derive(Debug, Error)]
pub enum CodecError {
    /// The bytes are not a frame.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The connection broke, or ended within a frame.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads frames from a stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    /// The most bytes of a payload of any kind.
    limit: usize,
    /// The last large payloads, the oldest first. None is kept after a small frame, which ends a stream of large ones.
    spare: VecDeque<Bytes>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from `stream`, which needs no buffer of its own.
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new(), limit: MAX_DATA_PAYLOAD, spare: VecDeque::new() }
    }

    /// Reads from an unauthenticated client: until [`FrameReader::trust`], payloads of all kinds have the limit of control frames.
    pub fn of_stranger(stream: R) -> Self {
        Self { limit: MAX_CONTROL_PAYLOAD, ..Self::new(stream) }
    }

    /// Accepts large payloads from now on.
    pub fn trust(&mut self) {
        self.limit = MAX_DATA_PAYLOAD;
    }

    /// The next frame; `None` if the peer has ended the stream after a frame. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is broken or ends within a frame, or the bytes are not a frame.
    pub async fn next(&mut self) -> Result<Option<Frame>, CodecError> {
        loop {
            if let Some(frame) = Frame::decode_within(&mut self.buffer, self.limit)? {
                self.keep(&frame);
                return Ok(Some(frame));
            }
            if self.buffer.is_empty() {
                self.reuse();
            }
            if self.buffer.spare_capacity_mut().is_empty() || self.buffer.is_empty() {
                self.buffer.reserve(READ_BYTES);
            }
            // Read no bytes of the next frame: they would have to be moved out of this payload's memory.
            let room = self.missing().min(self.buffer.spare_capacity_mut().len());
            if self.stream.read_buf(&mut (&mut self.buffer).limit(room)).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(self.cut_off().into()) };
            }
        }
    }

    /// How many bytes to read for the frame at the front of the buffer.
    fn missing(&self) -> usize {
        match self.buffer.first_chunk::<HEADER_BYTES>() {
            Some(&[_, _, _, _, l0, l1, l2, l3, ..]) => {
                let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
                (HEADER_BYTES + length).saturating_sub(self.buffer.len()).max(1)
            }
            None => READ_BYTES,
        }
    }

    /// Remembers the memory of a large payload.
    fn keep(&mut self, frame: &Frame) {
        if frame.payload.len() < LARGE {
            self.spare.clear();
            return;
        }
        if self.spare.len() == SPARE {
            self.spare.pop_front();
        }
        self.spare.push_back(frame.payload.clone());
    }

    /// Makes the memory of the oldest payload the empty buffer, if nothing else refers to it any more.
    fn reuse(&mut self) {
        if self.spare.front().is_some_and(Bytes::is_unique)
            && let Some(payload) = self.spare.pop_front()
            && let Ok(mut memory) = payload.try_into_mut()
        {
            memory.clear();
            // The memory began with the frame's header, which was split off.
            memory.reserve(memory.capacity() + HEADER_BYTES);
            self.buffer = memory;
        }
    }

    /// The stream, and the bytes after the last frame that have been read from it.
    #[must_use]
    pub fn into_parts(self) -> (R, BytesMut) {
        (self.stream, self.buffer)
    }

    /// Reads and discards everything up to the end of the stream.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn discard(&mut self) -> io::Result<()> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(());
            }
        }
    }

    fn cut_off(&self) -> io::Error {
        let text = format!("the stream ends {} bytes into a frame", self.buffer.len());
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }
}

/// Writes frames to a stream.
#[derive(Debug)]
pub struct FrameWriter<W> {
    stream: W,
    buffer: BytesMut,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Writes to `stream`, which needs no buffer of its own.
    pub fn new(stream: W) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// Writes and flushes a message; returns its length in bytes.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send(&mut self, message: &BuilderMessage) -> io::Result<u64> {
        self.buffer.clear();
        message.encode(&mut self.buffer);
        self.stream.write_all(&self.buffer).await?;
        self.stream.flush().await?;
        Ok(self.buffer.len() as u64)
    }

    /// Writes and flushes a frame with a large payload, without copying it; returns its length in bytes.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send_parts(&mut self, mut head: Bytes, mut body: Bytes) -> io::Result<u64> {
        let length = (head.len() + body.len()) as u64;
        while head.has_remaining() {
            let written = self.stream.write_vectored(&[IoSlice::new(&head), IoSlice::new(&body)]).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let of_head = written.min(head.len());
            head.advance(of_head);
            body.advance(written - of_head);
        }
        self.stream.write_all(&body).await?;
        self.stream.flush().await?;
        Ok(length)
    }

    /// The stream.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.stream
    }

    /// Closes the sending side: the peer reads the end of the stream after all sent data.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use protocol::{BuilderMessage, PAGE_SIZE, Progress, encode_pages};
    use tokio::io::{AsyncWriteExt, duplex};

    use super::{CodecError, FrameReader, FrameWriter};

    #[tokio::test]
    async fn frames_pass_a_pipe_of_seven_bytes() {
        let (near, far) = duplex(7);
        let (mut reader, mut writer) = (FrameReader::new(near), FrameWriter::new(far));
        let progress = BuilderMessage::Progress(Progress { phase: 1, done: 2, total: 3 });
        let (head, body, crc) = encode_pages(4, Bytes::from(vec![5; 2 * PAGE_SIZE]));
        let sent = progress.clone();
        let sending = async move {
            writer.send(&sent).await.unwrap();
            assert_eq!(writer.send_parts(head, body).await.unwrap(), 20 + 2 * PAGE_SIZE as u64);
            writer.shutdown().await.unwrap();
        };
        let receiving = async {
            let first = reader.next().await.unwrap().unwrap();
            assert_eq!(BuilderMessage::from_frame(&first).unwrap(), Some(progress));
            let second = reader.next().await.unwrap().unwrap();
            assert_eq!((second.crc, second.payload.len()), (crc, 8 + 2 * PAGE_SIZE));
            assert!(reader.next().await.unwrap().is_none());
        };
        tokio::join!(sending, receiving);
    }

    #[tokio::test]
    async fn payloads_that_are_still_held_are_not_overwritten() {
        let (near, far) = duplex(100_000);
        let (mut reader, mut writer) = (FrameReader::new(near), FrameWriter::new(far));
        let pages = |at: u32| 1 + at as usize * 7 % 40;
        let sending = async move {
            for at in 0..200 {
                let (head, body, _) = encode_pages(at, Bytes::from(vec![at as u8; pages(at) * PAGE_SIZE]));
                writer.send_parts(head, body).await.unwrap();
                if at % 50 == 49 {
                    writer.send(&BuilderMessage::Heartbeat).await.unwrap();
                }
            }
            writer.shutdown().await.unwrap();
        };
        let receiving = async {
            let mut kept = std::collections::VecDeque::new();
            let mut at = 0u32;
            while let Some(frame) = reader.next().await.unwrap() {
                if frame.payload.is_empty() {
                    continue;
                }
                assert_eq!(frame.payload.len(), 8 + pages(at) * PAGE_SIZE);
                kept.push_back((at, frame.payload));
                at += 1;
                // Holds one frame at first, twelve at the end.
                while kept.len() > 1 + at as usize / 17 {
                    let (at, payload) = kept.pop_front().unwrap();
                    assert!(payload[8..].iter().all(|&byte| byte == at as u8), "frame {at}");
                }
            }
            assert_eq!(at, 200);
        };
        tokio::join!(sending, receiving);
    }

    #[tokio::test]
    async fn memory_of_dropped_payloads_is_reused() {
        let (near, far) = duplex(100_000);
        let (mut reader, mut writer) = (FrameReader::new(near), FrameWriter::new(far));
        let sending = async move {
            for at in 0..20 {
                let (head, body, _) = encode_pages(at, Bytes::from(vec![1; 32 * PAGE_SIZE]));
                writer.send_parts(head, body).await.unwrap();
            }
            writer.send(&BuilderMessage::Heartbeat).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let receiving = async {
            // Each payload is dropped at once, so that the reader always reuses the same memory.
            for at in 0..20 {
                drop(reader.next().await.unwrap().unwrap());
                assert_eq!(reader.spare.len(), 1, "frame {at}");
            }
            reader.next().await.unwrap().unwrap();
            assert!(reader.spare.is_empty(), "memory is kept after a small frame");
            assert!(reader.next().await.unwrap().is_none());
        };
        tokio::join!(sending, receiving);
    }

    #[tokio::test]
    async fn payloads_of_unauthenticated_clients_are_limited() {
        let mut bytes = BytesMut::new();
        let (head, body, _) = encode_pages(4, Bytes::from(vec![5; 9 * PAGE_SIZE]));
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&body);
        let read = async |trusted: bool, length: usize| {
            let mut reader = FrameReader::of_stranger(&bytes[..length]);
            if trusted {
                reader.trust();
            }
            reader.next().await.map(|frame| frame.is_some()).map_err(|error| error.to_string())
        };
        // The error is found as soon as the header has arrived.
        let error = read(false, 12).await.unwrap_err();
        assert!(error.contains("65536"), "{error}");
        assert_eq!(read(true, bytes.len()).await, Ok(true));
    }

    #[tokio::test]
    async fn an_end_within_a_frame_is_an_error() {
        let mut bytes = BytesMut::new();
        BuilderMessage::Heartbeat.encode(&mut bytes);
        let (near, mut far) = duplex(64);
        far.write_all(&bytes[..5]).await.unwrap();
        drop(far);
        let error = FrameReader::new(near).next().await.unwrap_err();
        assert!(matches!(&error, CodecError::Io(_)), "{error}");
        assert_eq!(error.to_string(), "the stream ends 5 bytes into a frame");
    }
}
