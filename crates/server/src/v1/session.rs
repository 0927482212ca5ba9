use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hnsw::BuildSpec;
use protocol::v1::{ACK, BuildOrder, RowDecoder, error_frame};
use protocol::{Hello, Refuse};
use service::report::Subject;
use service::{Client, Queued, Refusal, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use super::receive::Receiver;
use super::send::Sender;
use super::{Lantern, answer};
use crate::admission::{Need, Place, Reservation, Waits};
use crate::hello;
use crate::job::{Form, Job};
use crate::lifecycle::{self, EndedBuild, LINGER, StartedBuild, overdue};
use crate::meter::Meter;
use crate::server::Shared;
use crate::session_error::SessionError;
use crate::ticket;

/// How long a build may wait in the queue. Clients give up after 10 seconds without an answer.
const PATIENCE: Duration = Duration::from_secs(7);

/// Serves a connection whose client has chosen this protocol. If a router relays the client, it has sent a `ticket` first.
pub(crate) async fn serve(
    stream: Box<dyn Transport>,
    shared: &Arc<Shared>,
    id: u64,
    peer: SocketAddr,
    ticket: Option<String>,
) {
    if let Err(error) = stream.reset_when_closed() {
        // Without a reset, the client would take the end of the stream for the end of its file.
        return tracing::warn!(%error, "closed: a Lantern client needs a connection that can be reset");
    }
    let metrics = shared.activity.metrics();
    let certificate = stream.peer_name();
    let (read, write) = split(stream);
    let receiver = Receiver::new(read, metrics);
    let sender = Sender::new(write, shared.config.listening.idle_timeout, metrics);
    let mut session = Session { id, peer, certificate, shared, ticket, receiver, sender };
    let (answered, build) = session.run().await;
    let Session { mut receiver, mut sender, .. } = session;
    // Without file and reason, the connection is reset, so that the client reports an error.
    let close = async move {
        if answered {
            tokio::join!(sender.shutdown(), receiver.discard());
        }
    };
    lifecycle::close(shared, id, build, close).await;
}

struct Session<'a, S> {
    id: u64,
    peer: SocketAddr,
    /// The name of the client's certificate.
    certificate: Option<String>,
    shared: &'a Arc<Shared>,
    /// The ticket, if a router relays the client.
    ticket: Option<String>,
    receiver: Receiver<'a, ReadHalf<S>>,
    sender: Sender<'a, WriteHalf<S>>,
}

/// Whether the client has received the file or the reason why there is none.
type Answered = bool;

/// A build whose engine accepts rows.
struct Begun {
    job: Job,
    reservation: Arc<Reservation>,
    meter: Meter,
}

/// Why no build has begun.
enum NotBegun {
    Refused(Refusal, String),
    Ended(SessionError),
}

fn refused(refuse: &Refuse) -> NotBegun {
    NotBegun::Refused(Refusal::of(refuse.report.sqlstate), answer::of_report(&refuse.report))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<'_, S> {
    async fn run(&mut self) -> (Answered, Option<EndedBuild>) {
        let order = match self.order().await {
            Ok(order) => order,
            Err(error) => {
                self.shared.activity.closed(error.closed(), format_args!("{error}"));
                return (self.explain(&error).await, None);
            }
        };
        let (spec, lantern) = Lantern::new(&order);
        let admitted = self.admit();
        let client = admitted.as_ref().map_or_else(|_| Client::unnamed(self.peer), Clone::clone);
        let (m, ef_construction) = (spec.m, spec.ef_construction);
        let hello = Hello { m, ef_construction, ..Hello::new(spec.value_type, spec.metric, spec.dims) };
        let queued = self.shared.activity.queue(Subject::new(self.id, self.peer, &client, &hello));
        let begun = match admitted {
            Ok(client) => {
                self.shared.door.pending.settle(self.id);
                self.begin(&spec, lantern, &client, &queued).await
            }
            Err((refusal, text)) => Err(NotBegun::Refused(refusal, text)),
        };
        match begun {
            Ok(begun) => {
                let (answered, build) = self.build(&spec, begun, queued).await;
                (answered, Some(build))
            }
            Err(NotBegun::Ended(error)) => {
                queued.end(error.outcome(), error.to_string());
                (self.tell(&error.to_string()).await, None)
            }
            Err(NotBegun::Refused(refusal, text)) => {
                if let Some(held_back) = self.shared.activity.peer_errors().pass() {
                    tracing::warn!(reason = text, held_back, "build refused");
                }
                queued.refuse(refusal, text.clone());
                let answered = self.tell(&text).await;
                (answered, None)
            }
        }
    }

    /// The client's order.
    async fn order(&mut self) -> Result<BuildOrder, SessionError> {
        let init = lifecycle::in_time(self.shared, self.receiver.init()).await?;
        Ok(init.order(self.shared.config.lantern_inner_product)?)
    }

    /// Authenticates the client by its router's ticket, else by its certificate.
    fn admit(&self) -> Result<Client, (Refusal, String)> {
        if let Some(refuse) = self.shared.activity.refuses("builder") {
            return Err((Refusal::Draining, refuse.report.message));
        }
        let (config, refused) = (&self.shared.config, |text: &str| Err((Refusal::Access, text.to_owned())));
        let sent = match &self.ticket {
            Some(ticket) => ticket::check(config.tickets.as_deref(), ticket)
                .map_err(|refuse| (Refusal::Access, answer::of_report(&refuse.report)))?,
            // Lantern's protocol has no tickets, so a flag decides.
            None if config.tickets.is_some() && !config.lantern_without_ticket => {
                return refused(
                    "this builder takes only builds that its router sends, and the client cannot show a ticket",
                );
            }
            None => None,
        };
        let own = config.listening.access.admit_lantern("builder", self.peer, self.certificate.as_deref());
        let own = own.map_err(|text| (Refusal::Access, text))?;
        Ok(sent.unwrap_or(own))
    }

    /// Runs from the order up to the answer, which the caller sends.
    async fn begin(
        &self,
        spec: &BuildSpec,
        lantern: Lantern,
        client: &Client,
        queued: &Queued,
    ) -> Result<Begun, NotBegun> {
        // Lantern's clients send no usable number of rows.
        let (all, need) = (self.shared.threads(), |threads| Need::new(spec, threads));
        let entered = self.shared.admission.enter_with(all, need, |need| need.at_first(0), client);
        let (place, need) = entered.map_err(|no_place| refused(&hello::refuse_other("build", no_place)))?;
        let reservation = Arc::new(self.queue(&place, queued).await?);
        let storage = self.shared.storage();
        let (form, reserved) = (Form::Nodes(lantern), reservation.clone());
        let started =
            Job::start(self.id, self.shared, spec.clone(), form, storage.clone(), need.threads(), reserved).await;
        let job = started.map_err(|error| refused(&hello::refuse_error(&error)))?;
        let meter = Meter::new(need, storage, reservation.clone(), self.shared.max_rows(client));
        Ok(Begun { job, reservation, meter })
    }

    async fn queue(&self, place: &Place, queued: &Queued) -> Result<Reservation, NotBegun> {
        let turn = async {
            let mut reported = None;
            loop {
                let changed = place.changed();
                let Waits { position, reason } = match place.take() {
                    Ok(reservation) => return reservation,
                    Err(waits) => waits,
                };
                if reported.replace(position) != Some(position) {
                    tracing::info!(position, reason, "build waits");
                }
                queued.place(position, place.bytes());
                changed.await;
            }
        };
        tokio::select! {
            turn = timeout(PATIENCE, turn) => turn.or_else(|_| place.take()).map_err(|Waits { position, reason }| {
                let text = format!("builder is busy, try again later: number {position} in the queue, {reason}");
                NotBegun::Refused(Refusal::Queue, text)
            }),
            () = queued.cancelled() => Err(NotBegun::Ended(SessionError::Operator)),
            () = self.shared.drain.cancelled() => {
                Err(NotBegun::Refused(Refusal::Draining, SessionError::Shutdown.to_string()))
            }
        }
    }

    async fn build(&mut self, spec: &BuildSpec, begun: Begun, queued: Queued) -> (Answered, EndedBuild) {
        let Begun { job, reservation, meter } = begun;
        let mut build = StartedBuild::new(job, queued, spec, reservation.bytes(), None);
        let decoder = RowDecoder::new(spec.value_type.value_len(spec.dims).unwrap_or(0));
        let result = match self.sender.send(&ACK).await {
            Ok(()) => {
                let StartedBuild { job, watch, running, .. } = &mut build;
                tokio::select! {
                    sent = self.sender.drive(&mut job.events, watch, running) => sent.map(drop),
                    error = self.receiver.drive(decoder, meter, &job.rows, running) => Err(error),
                    error = overdue(&self.shared.config, watch) => Err(error),
                    () = running.cancelled() => Err(SessionError::Operator),
                    () = self.shared.stop.cancelled() => Err(SessionError::Shutdown),
                }
            }
            Err(error) => Err(error),
        };
        let answered = match &result {
            Ok(()) => true,
            Err(error) => {
                build.job.control.cancel();
                let waits = self.receiver.has_ended() && !self.sender.has_begun();
                match error {
                    SessionError::Left | SessionError::Connection(_) => self.fail(error).await,
                    error if waits => self.fail(error).await,
                    error => {
                        tracing::warn!(%error, "connection reset: a Lantern client cannot be told why at this time");
                        false
                    }
                }
            }
        };
        (answered, build.end(&result))
    }

    /// Logs why the session ends, and sends the client the reason if it waits for an answer.
    async fn fail(&mut self, error: &SessionError) -> Answered {
        lifecycle::log_failure(&self.shared.activity, error);
        self.explain(error).await
    }

    /// Sends the client the reason why the session ends, if it waits for an answer.
    async fn explain(&mut self, error: &SessionError) -> Answered {
        match error {
            SessionError::Left | SessionError::Connection(_) | SessionError::Late(_) => false,
            error => self.tell(&answer::of_error(error)).await,
        }
    }

    async fn tell(&mut self, text: &str) -> Answered {
        matches!(timeout(LINGER, self.sender.send(&error_frame(text))).await, Ok(Ok(())))
    }
}
