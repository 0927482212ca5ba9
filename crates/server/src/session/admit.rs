use std::sync::Arc;

use hnsw::BuildSpec;
use protocol::{BuilderMessage, ClientMessage, HEARTBEAT_INTERVAL, Hello, Refuse, Wait};
use service::Queued;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::Session;
use crate::admission::{Need, Place, Reservation};
use crate::end::SessionError;
use crate::hello;
use crate::job::{Form, Job};
use crate::ticket;

/// A build that has its memory and whose engine takes rows.
pub(super) struct Begun {
    pub(super) job: Job,
    pub(super) spec: BuildSpec,
    pub(super) need: Need,
    pub(super) reservation: Arc<Reservation>,
}

/// Why there is no build.
pub(super) enum NotBegun {
    /// The builder does not take it.
    Refused(Box<Refuse>),
    /// The session ended before.
    Ended(SessionError),
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// From the Hello to the Accept, which is still to be sent.
    pub(super) async fn begin(&mut self, hello: &Hello, ticket: &str, queued: &Queued) -> Result<Begun, NotBegun> {
        ticket::check(self.shared.config.tickets.as_deref(), ticket).map_err(NotBegun::Refused)?;
        let spec = hello::check(hello).map_err(NotBegun::Refused)?;
        let need = Need::new(&spec, self.shared.threads());
        let bytes = need.at_first(hello.estimated_rows);
        let place = self.shared.admission.enter(bytes);
        let place = place.map_err(|never| NotBegun::Refused(hello::refuse_never(hello, never)))?;
        let reservation = Arc::new(self.queue(&place, queued, bytes).await?);
        let job = Job::start(self.id, self.shared, spec.clone(), Form::Pages, reservation.clone()).await;
        let job = job.map_err(|error| NotBegun::Refused(hello::refuse_error(&error)))?;
        Ok(Begun { job, spec, need, reservation })
    }

    /// Waits for its turn, and says so; the client may cancel or leave meanwhile.
    async fn queue(&mut self, place: &Place, queued: &Queued, bytes: u64) -> Result<Reservation, NotBegun> {
        let limit = self.shared.config.idle_timeout;
        let mut heartbeat = interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (since, mut heard, mut told) = (Instant::now(), Instant::now(), 0);
        loop {
            if self.shared.drain.is_cancelled() {
                return Err(NotBegun::Refused(hello::refuse_error(&SessionError::Shutdown)));
            }
            let changed = place.changed();
            if let Some(reservation) = place.take() {
                if told > 0 {
                    tracing::info!(seconds = since.elapsed().as_secs_f64(), "build leaves the queue");
                }
                return Ok(reservation);
            }
            let (position, reason) = place.position();
            if position != told {
                tracing::info!(position, reason, "build waits");
                queued.place(position, bytes);
                told = position;
                self.say(&BuilderMessage::Wait(Wait { position, reason })).await?;
            }
            tokio::select! {
                () = changed => {}
                () = self.shared.drain.cancelled() => {}
                _ = heartbeat.tick() => self.say(&BuilderMessage::Heartbeat).await?,
                message = self.reader.next() => match message {
                    Ok((ClientMessage::Cancel, _)) => return Err(NotBegun::Ended(SessionError::Cancelled)),
                    Ok(_) => heard = Instant::now(),
                    Err(error) => return Err(NotBegun::Ended(error)),
                },
                () = sleep_until(heard + limit) => return Err(NotBegun::Ended(SessionError::Silent(limit))),
            }
        }
    }

    async fn say(&mut self, message: &BuilderMessage) -> Result<(), NotBegun> {
        self.writer.send(message).await.map_err(NotBegun::Ended)
    }
}
