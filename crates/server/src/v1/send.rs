use std::time::Duration;

use protocol::Done;
use service::{Metrics, Running};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::job::Event;
use crate::progress::Watch;
use crate::session_error::SessionError;
use crate::writing::within;

/// Writes to the client.
pub(super) struct Sender<'a, W> {
    stream: W,
    idle_timeout: Duration,
    metrics: &'a Metrics,
    begun: bool,
}

impl<'a, W: AsyncWrite + Unpin> Sender<'a, W> {
    pub(super) fn new(stream: W, idle_timeout: Duration, metrics: &'a Metrics) -> Self {
        Self { stream, idle_timeout, metrics, begun: false }
    }

    /// Whether a part of the result was sent: the client would read an error message as more of the result.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Sends bytes; a few of them in one TCP segment.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        within(self.idle_timeout, sending).await?;
        self.metrics.sent_bytes.inc_by(bytes.len() as u64);
        Ok(())
    }

    /// The sending half of a session: waits until the file begins, then sends it.
    pub(super) async fn drive(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        watch: &Watch,
        running: &Running,
    ) -> Result<Done, SessionError> {
        loop {
            match events.recv().await {
                Some(Event::Started) => {}
                // Only checks and advice have these events.
                Some(Event::Findings(_) | Event::Advice(_)) => {}
                Some(Event::Layout(layout)) => watch.enter_pages(layout.blocks),
                Some(Event::Pages { count, head, body }) => {
                    self.begun = true;
                    self.send(&head).await?;
                    self.send(&body).await?;
                    running.add_pages(count.into());
                    watch.add_pages(count);
                }
                Some(Event::Done(done)) => {
                    running.set_graph(&done);
                    return Ok(done);
                }
                Some(Event::Failed(error)) => return Err(error),
                None => return Err(SessionError::Defect("build thread ended without a result".to_owned())),
            }
        }
    }

    /// Ends the stream, which tells the client that the file is complete.
    pub(super) async fn shutdown(&mut self) {
        // Shutting down a broken connection fails; it has ended anyway.
        let _ = self.stream.shutdown().await;
    }
}
