use std::io;

use bytes::BytesMut;
use protocol::v1::{INIT_BYTES, Init, RowDecoder, Step};
use service::{Metrics, Running};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use crate::job::Input;
use crate::meter::{Bound, Meter};
use crate::reading::hand_over;
use crate::session_error::SessionError;

/// The size of the read buffer. Clients send each row by itself, so small reads would be mostly overhead.
const READ_BYTES: usize = 256 << 10;

/// Reads the client's messages.
pub(super) struct Receiver<'a, R> {
    stream: R,
    metrics: &'a Metrics,
    ended: bool,
}

impl<'a, R: AsyncRead + Unpin> Receiver<'a, R> {
    pub(super) fn new(stream: R, metrics: &'a Metrics) -> Self {
        Self { stream, metrics, ended: false }
    }

    /// The client's order.
    pub(super) async fn init(&mut self) -> Result<Init, SessionError> {
        let mut bytes = [0; INIT_BYTES];
        self.stream.read_exact(&mut bytes).await.map_err(left)?;
        self.metrics.received_bytes.inc_by(4 + INIT_BYTES as u64);
        Ok(Init::from_bytes(&bytes))
    }

    /// Whether all rows have arrived: only then does the client read an answer.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The receiving half of a session: passes rows to the job, then waits for the client to leave. Returns only an error.
    ///
    /// There is no time limit: a scan may find no row for hours, and these clients send no heartbeats. TCP keepalive detects a dead host.
    pub(super) async fn drive(
        &mut self,
        decoder: RowDecoder,
        mut meter: Meter,
        job: &mpsc::Sender<Input>,
        running: &Running,
    ) -> SessionError {
        let mut buffer = BytesMut::new();
        loop {
            match decoder.next(&mut buffer) {
                Ok(Step::Rows(rows)) => {
                    running.add_rows(rows.count.into());
                    match meter.add(&rows) {
                        Ok(true) => running.set_memory(meter.reserved()),
                        Ok(false) => {}
                        Err(error) => return error,
                    }
                    hand_over(job, Input::Rows(rows)).await;
                }
                Ok(Step::More) => match self.read(&mut buffer).await {
                    Ok(()) => {}
                    Err(error) => return error,
                },
                Ok(Step::End) => break,
                Err(error) => return error.into(),
            }
        }
        if !buffer.is_empty() {
            return SessionError::BeyondEnd;
        }
        self.ended = true;
        meter.end();
        running.set_memory(meter.reserved());
        hand_over(job, Input::End).await;
        match self.read(&mut buffer).await {
            Ok(()) => SessionError::BeyondEnd,
            Err(error) => error,
        }
    }

    async fn read(&mut self, buffer: &mut BytesMut) -> Result<(), SessionError> {
        buffer.reserve(READ_BYTES);
        match self.stream.read_buf(buffer).await {
            Ok(0) => Err(SessionError::Left),
            Ok(bytes) => {
                self.metrics.received_bytes.inc_by(bytes as u64);
                Ok(())
            }
            Err(error) => Err(SessionError::Connection(error)),
        }
    }

    /// Reads and discards the client's remaining bytes.
    pub(super) async fn discard(&mut self) {
        let mut buffer = BytesMut::new();
        while self.read(&mut buffer).await.is_ok() {
            buffer.clear();
        }
    }
}

fn left(error: io::Error) -> SessionError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SessionError::Left,
        _ => SessionError::Connection(error),
    }
}
