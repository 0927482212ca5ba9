use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use protocol::{BuilderMessage, Frame, MAX_CONTROL_PAYLOAD, MAX_DATA_PAYLOAD, ProtocolError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The size of a read when the length of the frame is not known.
const READ_BYTES: usize = 16 << 10;

/// Why no frame could be read.
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
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from `stream`, which needs no buffer of its own.
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new(), limit: MAX_DATA_PAYLOAD }
    }

    /// Reads from a client that is not authenticated: payloads are limited to those of control frames, until [`FrameReader::trust`].
    pub fn of_stranger(stream: R) -> Self {
        Self { limit: MAX_CONTROL_PAYLOAD, ..Self::new(stream) }
    }

    /// Accepts large frames from now on.
    pub fn trust(&mut self) {
        self.limit = MAX_DATA_PAYLOAD;
    }

    /// The next frame; `None` if the peer has ended the stream after a frame. Cancel-safe.
    ///
    /// # Errors
    /// When the connection is broken or ends within a frame, or the bytes are not a frame.
    pub async fn next(&mut self) -> Result<Option<Frame>, CodecError> {
        loop {
            if let Some(frame) = Frame::decode_within(&mut self.buffer, self.limit)? {
                return Ok(Some(frame));
            }
            if self.buffer.spare_capacity_mut().is_empty() || self.buffer.is_empty() {
                self.buffer.reserve(READ_BYTES);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(self.cut_off().into()) };
            }
        }
    }

    /// The stream, and the bytes behind the last frame that have been read from it.
    #[must_use]
    pub fn into_parts(self) -> (R, BytesMut) {
        (self.stream, self.buffer)
    }

    /// Reads and discards everything up to the end of the stream.
    ///
    /// # Errors
    /// When the connection is broken.
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

    /// Writes and flushes a message; returns the bytes it took.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn send(&mut self, message: &BuilderMessage) -> io::Result<u64> {
        self.buffer.clear();
        message.encode(&mut self.buffer);
        self.stream.write_all(&self.buffer).await?;
        self.stream.flush().await?;
        Ok(self.buffer.len() as u64)
    }

    /// Writes and flushes a frame whose payload is large, without copying it; returns the bytes it took.
    ///
    /// # Errors
    /// When the connection is broken.
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

    /// Ends the stream: the peer reads its end after what was sent.
    ///
    /// # Errors
    /// When the connection is broken.
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
    async fn frames_pass_a_narrow_pipe_whole() {
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
    async fn a_stranger_sends_no_long_frame() {
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
        // The error comes as soon as the header has arrived.
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
