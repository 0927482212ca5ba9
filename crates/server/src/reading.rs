use std::future::pending;
use std::time::Duration;

use protocol::{ClientMessage, Frame, HEADER_BYTES, SessionState};
use service::{FrameReader, Metrics, Running};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::end::SessionError;
use crate::job::Input;
use crate::meter::Meter;
use crate::rows::RowTotals;

/// What the client sends.
pub(crate) struct Reader<'a, R> {
    frames: FrameReader<R>,
    state: SessionState,
    metrics: &'a Metrics,
}

impl<'a, R: AsyncRead + Unpin> Reader<'a, R> {
    pub(crate) fn new(stream: R, metrics: &'a Metrics) -> Self {
        Self { frames: FrameReader::of_stranger(stream), state: SessionState::Opened, metrics }
    }

    /// The next message that may come now, with the checksum of its frame. What the client lets us skip reads as a heartbeat.
    pub(crate) async fn next(&mut self) -> Result<(ClientMessage, u32), SessionError> {
        let frame: Frame = self.frames.next().await?.ok_or(SessionError::Left)?;
        self.metrics.received_bytes.inc_by((HEADER_BYTES + frame.payload.len()) as u64);
        let Some(message) = ClientMessage::from_frame(&frame)? else {
            return Ok((ClientMessage::Heartbeat, frame.crc));
        };
        self.state = self.state.client(&message)?;
        Ok((message, frame.crc))
    }

    /// The client's half of a build: hands its rows to the job, then listens whether it leaves. Ends only by an error.
    pub(crate) async fn drive(
        &mut self,
        totals: RowTotals,
        meter: Meter,
        job: &mpsc::Sender<Input>,
        idle_timeout: Duration,
        running: &Running,
    ) -> SessionError {
        self.state = SessionState::Rows;
        self.frames.trust();
        if let Err(error) = self.rows(totals, meter, job, idle_timeout, running).await {
            return error;
        }
        // The client waits for us now, so its silence means nothing; a host that vanished is noticed by keepalive.
        loop {
            match self.next().await {
                Ok((ClientMessage::Cancel, _)) => return SessionError::Cancelled,
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    async fn rows(
        &mut self,
        mut totals: RowTotals,
        mut meter: Meter,
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
                // The state lets no Hello, Ticket or Ping through.
                ClientMessage::Heartbeat
                | ClientMessage::Hello(_)
                | ClientMessage::Ticket(_)
                | ClientMessage::Ping(_) => {}
            }
        }
    }

    /// Reads and forgets what the client still sends.
    pub(crate) async fn discard(&mut self) {
        // If the connection breaks, that is the end as well.
        let _ = self.frames.discard().await;
    }
}

/// Gives the build thread its input, waiting for it to take what came before. If it has ended, it says why itself.
pub(crate) async fn hand_over(job: &mpsc::Sender<Input>, input: Input) {
    if job.send(input).await.is_err() {
        pending::<()>().await;
    }
}
