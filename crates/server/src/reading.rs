use std::future::pending;
use std::time::Duration;

use protocol::{ClientMessage, Frame, HEADER_BYTES, SessionState, StreamChecksum};
use service::{FrameReader, Metrics, Running};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::advising::SampleMeter;
use crate::job::Input;
use crate::meter::{Bound, Meter};
use crate::rows::RowTotals;
use crate::session_error::SessionError;

/// What the client sends after Accept.
pub(crate) enum Intake {
    /// Rows for a build.
    Rows(RowTotals, Meter),
    /// This number of pages to check.
    Index(u32),
    /// A sample of rows for advice.
    Sample(RowTotals, SampleMeter),
}

/// Reads the client's messages.
pub(crate) struct Reader<'a, R> {
    frames: FrameReader<R>,
    state: SessionState,
    metrics: &'a Metrics,
}

impl<'a, R: AsyncRead + Unpin> Reader<'a, R> {
    pub(crate) fn new(stream: R, metrics: &'a Metrics) -> Self {
        Self { frames: FrameReader::of_stranger(stream), state: SessionState::Opened, metrics }
    }

    /// The next message, checked against the protocol's state, with the checksum of its frame.
    /// Unknown optional messages count as heartbeats.
    pub(crate) async fn next(&mut self) -> Result<(ClientMessage, u32), SessionError> {
        let frame: Frame = self.frames.next().await?.ok_or(SessionError::Left)?;
        self.metrics.received_bytes.inc_by((HEADER_BYTES + frame.payload.len()) as u64);
        let Some(message) = ClientMessage::from_frame(&frame)? else {
            return Ok((ClientMessage::Heartbeat, frame.crc));
        };
        self.state = self.state.client(&message)?;
        Ok((message, frame.crc))
    }

    /// The receiving half of a session: passes rows, or pages to check, to the job, then waits for
    /// the client to leave. Returns only an error.
    pub(crate) async fn drive(
        &mut self,
        intake: Intake,
        job: &mpsc::Sender<Input>,
        idle_timeout: Duration,
        running: &Running,
    ) -> SessionError {
        self.frames.trust();
        let taken = match intake {
            Intake::Rows(totals, meter) => {
                self.state = SessionState::Rows;
                self.rows(totals, meter, job, idle_timeout, running).await
            }
            Intake::Sample(totals, meter) => {
                self.state = SessionState::Sample;
                self.rows(totals, meter, job, idle_timeout, running).await
            }
            Intake::Index(blocks) => {
                self.state = SessionState::IndexPages;
                self.index(blocks, job, idle_timeout, running).await
            }
        };
        if let Err(error) = taken {
            return error;
        }
        // The client now waits for the builder, so its silence has no time limit; TCP keepalive detects a dead host.
        loop {
            match self.next().await {
                Ok((ClientMessage::Cancel, _)) => return SessionError::Cancelled,
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    /// Receives the rows of a table or of a sample.
    async fn rows(
        &mut self,
        mut totals: RowTotals,
        mut meter: impl Bound,
        job: &mpsc::Sender<Input>,
        idle_timeout: Duration,
        running: &Running,
    ) -> Result<(), SessionError> {
        loop {
            let next = timeout(idle_timeout, self.next()).await;
            let (message, crc) = next.map_err(|_| SessionError::Silent(idle_timeout))??;
            match message {
                ClientMessage::Tuples(tuples) => {
                    totals.add(&tuples, crc)?;
                    running.add_rows(tuples.count.into());
                    if meter.add(&tuples)? {
                        running.set_memory(meter.reserved());
                    }
                    hand_over(job, Input::Rows(tuples)).await;
                }
                ClientMessage::EndOfTuples(end) => {
                    totals.check(&end)?;
                    meter.end();
                    running.set_memory(meter.reserved());
                    hand_over(job, Input::End).await;
                    return Ok(());
                }
                ClientMessage::Cancel => return Err(SessionError::Cancelled),
                // The protocol's state machine accepts no other messages here.
                ClientMessage::Heartbeat
                | ClientMessage::IndexPages(_)
                | ClientMessage::EndOfIndex(_)
                | ClientMessage::Hello(_)
                | ClientMessage::Ticket(_)
                | ClientMessage::Ping(_) => {}
            }
        }
    }

    /// Receives the announced number of pages of an index, from block 0.
    async fn index(
        &mut self,
        blocks: u32,
        job: &mpsc::Sender<Input>,
        idle_timeout: Duration,
        running: &Running,
    ) -> Result<(), SessionError> {
        let (mut received, mut checksum) = (0u32, StreamChecksum::new());
        loop {
            let next = timeout(idle_timeout, self.next()).await;
            let (message, crc) = next.map_err(|_| SessionError::Silent(idle_timeout))??;
            match message {
                ClientMessage::IndexPages(pages) => {
                    let after = pages.first_block.saturating_add(pages.page_count());
                    if pages.first_block != received || after > blocks {
                        let (first, count) = (pages.first_block, pages.page_count());
                        return Err(SessionError::IndexPages { first, count, due: received, blocks });
                    }
                    received = after;
                    checksum.add(crc);
                    running.add_checked_pages(pages.page_count().into());
                    hand_over(job, Input::Pages(pages)).await;
                }
                ClientMessage::EndOfIndex(end) => {
                    let checksum = checksum.value();
                    if (end.blocks, end.blocks) != (received, blocks) {
                        return Err(SessionError::IndexBlocks { received, sent: end.blocks, blocks });
                    }
                    if end.checksum != checksum {
                        return Err(SessionError::IndexChecksum { received: checksum, sent: end.checksum });
                    }
                    hand_over(job, Input::EndOfIndex(checksum)).await;
                    return Ok(());
                }
                ClientMessage::Cancel => return Err(SessionError::Cancelled),
                _ => {}
            }
        }
    }

    /// Reads and discards the client's remaining bytes.
    pub(crate) async fn discard(&mut self) {
        // A broken connection also ends the session.
        let _ = self.frames.discard().await;
    }
}

/// Passes input to the build thread; waits while its channel is full. If the thread has ended, an event says why.
pub(crate) async fn hand_over(job: &mpsc::Sender<Input>, input: Input) {
    if job.send(input).await.is_err() {
        pending::<()>().await;
    }
}
