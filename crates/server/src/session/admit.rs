use std::sync::Arc;

use hnsw::{BuildSpec, Storage};
use protocol::{BuilderMessage, ClientMessage, HEARTBEAT_INTERVAL, Hello, Refuse, Wait, capability};
use service::{Client, Queued};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::Session;
use crate::admission::{Need, NoPlace, Place, Reservation, Waits};
use crate::advising::SampleNeed;
use crate::hello;
use crate::job::{Form, Job};
use crate::session_error::SessionError;

/// A build, check or advice whose memory is reserved, ready for rows, pages or a sample.
pub(super) struct Begun {
    pub(super) job: Job,
    pub(super) spec: BuildSpec,
    pub(super) work: Work,
    pub(super) threads: u32,
    pub(super) reservation: Arc<Reservation>,
    /// A NOTICE for the user; may be empty.
    pub(super) remark: String,
}

/// The kind of work, with its memory need.
pub(super) enum Work {
    /// A build; its need grows with its rows.
    Build(Need, Storage),
    /// A check of this number of pages.
    Check(u32),
    /// Advice on a sample.
    Advice(SampleNeed),
}

/// Why no build was started.
pub(super) enum NotBegun {
    /// The builder refuses it.
    Refused(Box<Refuse>),
    /// The session has ended.
    Ended(SessionError),
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// Runs from the Hello up to the Accept, which the caller sends.
    pub(super) async fn begin(&mut self, hello: &Hello, client: &Client, queued: &Queued) -> Result<Begun, NotBegun> {
        let spec = hello::check(hello, self.shared.config.max_rows).map_err(NotBegun::Refused)?;
        client.limits.check_rows(hello.rows_to_index()).map_err(NotBegun::Refused)?;
        let all = self.shared.threads();
        let (place, form, storage, work, threads, remark) = match (hello.check, hello.ask) {
            (Some(check), _) => {
                let need = hello::check_need(&spec, &check).map_err(NotBegun::Refused)?;
                let refused = |no_place| NotBegun::Refused(hello::refuse_other("check of the index", no_place));
                let place = self.shared.admission.enter(need.bytes(), client).map_err(refused)?;
                let (form, work) = (Form::Findings(check, need), Work::Check(check.blocks));
                (place, form, Storage::default(), work, all, String::new())
            }
            (None, Some(ask)) => {
                hello::check_ask(hello, &ask).map_err(NotBegun::Refused)?;
                let need = |threads| SampleNeed::new(&spec, hello.estimated_rows, threads);
                let refused = |no_place| NotBegun::Refused(hello::refuse_other("advice", no_place));
                let entered = self.shared.admission.enter_with(all, need, SampleNeed::at_first, client);
                let (place, need) = entered.map_err(refused)?;
                let form = Form::Advice { ask, own_type: hello.capabilities & capability::OWN_TYPE != 0 };
                (place, form, Storage::default(), Work::Advice(need), need.threads(), String::new())
            }
            (None, None) => {
                let (place, need, storage, remark) = self.enter(hello, client, &spec)?;
                (place, Form::Pages, storage.clone(), Work::Build(need, storage), need.threads(), remark)
            }
        };
        let reservation = Arc::new(self.queue(&place, queued).await?);
        let reserved = reservation.clone();
        let job = Job::start(self.id, self.shared, spec.clone(), form, storage, threads, reserved).await;
        let job = job.map_err(|error| NotBegun::Refused(hello::refuse_error(&error)))?;
        Ok(Begun { job, spec, work, threads, reservation, remark })
    }

    /// Joins the queue. If the values cannot fit into memory, they go to the spool, and the user gets a remark about it.
    fn enter(
        &self,
        hello: &Hello,
        client: &Client,
        spec: &BuildSpec,
    ) -> Result<(Place, Need, Storage, String), NotBegun> {
        let (admission, all) = (&self.shared.admission, self.shared.threads());
        let storage = self.shared.storage();
        let rows = hello.estimated_rows;
        let refused = |no_place| NotBegun::Refused(hello::refuse_place(hello, no_place));
        let need = |threads| Need::new(spec, threads);
        let bytes = |need: &Need| need.at_first(rows);
        let never = match admission.enter_with(all, need, bytes, client) {
            Ok((place, need)) => return Ok((place, need, storage, String::new())),
            Err(NoPlace::Never(never) | NoPlace::BeyondClient(never)) if self.shared.config.spool_dir.is_some() => {
                never
            }
            Err(no_place) => return Err(refused(no_place)),
        };
        let entered = admission.enter_with(all, |threads| need(threads).spooled_after(0), bytes, client);
        let (place, spooled) = entered.map_err(refused)?;
        tracing::info!(memory = place.bytes(), without = never.needed, "values go to the spool");
        storage.spool();
        Ok((place, spooled, storage, hello::spool_remark(never)))
    }

    /// Waits in the queue and sends the client its position; the client may cancel or leave while it waits.
    async fn queue(&mut self, place: &Place, queued: &Queued) -> Result<Reservation, NotBegun> {
        let limit = self.shared.config.listening.idle_timeout;
        let mut heartbeat = interval(HEARTBEAT_INTERVAL);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (since, mut heard, mut reported) = (Instant::now(), Instant::now(), 0);
        loop {
            if self.shared.drain.is_cancelled() {
                return Err(NotBegun::Refused(hello::refuse_error(&SessionError::Shutdown)));
            }
            let changed = place.changed();
            let Waits { position, reason } = match place.take() {
                Err(waits) => waits,
                Ok(reservation) => {
                    if reported > 0 {
                        tracing::info!(seconds = since.elapsed().as_secs_f64(), "build leaves the queue");
                    }
                    return Ok(reservation);
                }
            };
            if position != reported {
                tracing::info!(position, reason, "build waits");
                queued.place(position, place.bytes());
                reported = position;
                self.send(&BuilderMessage::Wait(Wait { position, reason })).await?;
            }
            tokio::select! {
                // If this process was paused, read what has arrived meanwhile before the client counts as silent.
                biased;
                () = changed => {}
                () = self.shared.drain.cancelled() => {}
                () = queued.cancelled() => return Err(NotBegun::Ended(SessionError::Operator)),
                _ = heartbeat.tick() => self.send(&BuilderMessage::Heartbeat).await?,
                message = self.reader.next() => match message {
                    Ok((ClientMessage::Cancel, _)) => return Err(NotBegun::Ended(SessionError::Cancelled)),
                    Ok(_) => heard = Instant::now(),
                    Err(error) => return Err(NotBegun::Ended(error)),
                },
                () = sleep_until(heard + limit) => return Err(NotBegun::Ended(SessionError::Silent(limit))),
            }
        }
    }

    async fn send(&mut self, message: &BuilderMessage) -> Result<(), NotBegun> {
        self.writer.send(message).await.map_err(NotBegun::Ended)
    }
}
