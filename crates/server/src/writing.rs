use std::io;
use std::time::Duration;

use bytes::Bytes;
use protocol::{BuilderMessage, Done};
use service::{FrameWriter, Metrics, Running};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::job::Event;
use crate::progress::Watch;
use crate::session_error::SessionError;

/// The interval of progress messages to the client.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Sends to the client, which must read within the idle timeout.
pub(crate) struct Writer<'a, W> {
    frames: FrameWriter<W>,
    idle_timeout: Duration,
    metrics: &'a Metrics,
    between_frames: bool,
}

impl<'a, W: AsyncWrite + Unpin> Writer<'a, W> {
    pub(crate) fn new(stream: W, idle_timeout: Duration, metrics: &'a Metrics) -> Self {
        Self { frames: FrameWriter::new(stream), idle_timeout, metrics, between_frames: true }
    }

    pub(crate) async fn send(&mut self, message: &BuilderMessage) -> Result<(), SessionError> {
        self.between_frames = false;
        let bytes = within(self.idle_timeout, self.frames.send(message)).await?;
        self.sent(bytes);
        Ok(())
    }

    async fn send_pages(&mut self, head: Bytes, body: Bytes) -> Result<(), SessionError> {
        self.between_frames = false;
        let bytes = within(self.idle_timeout, self.frames.send_parts(head, body)).await?;
        self.sent(bytes);
        Ok(())
    }

    fn sent(&mut self, bytes: u64) {
        self.between_frames = true;
        self.metrics.sent_bytes.inc_by(bytes);
    }

    /// Whether another frame may follow: not after a partly written frame.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.between_frames
    }

    /// The sending half of a session: sends progress, then pages. Returns the totals when all is sent, or `None` soon after `stop`, but
    /// never in the middle of a frame.
    pub(crate) async fn drive(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        watch: &Watch,
        running: &Running,
        stop: &CancellationToken,
    ) -> Result<Option<Done>, SessionError> {
        let mut progress = interval(PROGRESS_INTERVAL);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut other_than_build = false;
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                _ = progress.tick() => {
                    self.send(&BuilderMessage::Progress(watch.message())).await?;
                    continue;
                }
                event = events.recv() => event,
            };
            match event {
                Some(Event::Started) => {}
                Some(Event::Layout(layout)) => {
                    watch.enter_pages(layout.blocks);
                    self.send(&BuilderMessage::Layout(layout)).await?;
                }
                Some(Event::Pages { count, head, body }) => {
                    self.send_pages(head, body).await?;
                    running.add_pages(count.into());
                    watch.add_pages(count);
                }
                Some(Event::Findings(findings)) => {
                    other_than_build = true;
                    self.send(&BuilderMessage::Findings(*findings)).await?;
                }
                Some(Event::Advice(advice)) => {
                    other_than_build = true;
                    self.send(&BuilderMessage::Advice(*advice)).await?;
                }
                Some(Event::Done(done)) => {
                    // Checks and advice build no index.
                    if !other_than_build {
                        running.set_graph(&done);
                    }
                    self.send(&BuilderMessage::Done(done)).await?;
                    return Ok(Some(done));
                }
                Some(Event::Failed(error)) => return Err(error),
                None => return Err(SessionError::Defect("build thread ended without a result".to_owned())),
            }
        }
    }

    /// Ends the stream.
    pub(crate) async fn shutdown(&mut self) {
        // Shutting down a broken connection fails; it has ended anyway.
        let _ = self.frames.shutdown().await;
    }
}

/// Fails if the client leaves data unread for too long.
pub(crate) async fn within<T>(
    limit: Duration,
    sending: impl Future<Output = io::Result<T>>,
) -> Result<T, SessionError> {
    match timeout(limit, sending).await {
        Ok(result) => result.map_err(SessionError::Connection),
        Err(_) => Err(SessionError::Unread(limit)),
    }
}
