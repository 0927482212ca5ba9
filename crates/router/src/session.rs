use std::net::SocketAddr;
use std::sync::Arc;

use protocol::{BuilderMessage, ClientMessage, ErrorReport, SqlState, Wait};
use service::report::Subject;
use service::{Closed, CodecError, Outcome, Queued, Refusal, printable};
use tokio::net::TcpStream;

use crate::admission::{NoBuilder, refuse_client, send, send_last, wait};
use crate::config::Mode;
use crate::handover::{redirect, supports_redirect};
use crate::health;
use crate::opening::{Client, Opening, open};
use crate::pool::{Followed, Lease, TICKET_LIFETIME};
use crate::relayed::{self, Relayed};
use crate::router::Shared;
use crate::scheduler::Demand;
use crate::spawner::Facts;
use crate::stages::Stages;

/// The number of builders to try if each is lost before it accepts the build.
pub(crate) const ATTEMPTS: u32 = 3;

/// Serves one connection until it is closed.
pub(crate) async fn serve(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>, id: u64) {
    let listening = &shared.config.listening;
    let here = stream.local_addr().map(|address| address.ip().to_canonical().to_string()).unwrap_or_default();
    let opening = async {
        let stream = listening.open(stream, &shared.activity).await?;
        Some(open(stream, peer, &shared.config).await)
    };
    let opened = tokio::select! {
        opened = opening => opened,
        () = shared.drain.cancelled() => None,
    };
    let Some(opened) = opened else { return };
    let session = Session { shared, peer, here, id };
    match opened {
        Ok(Opening::Build(client)) => session.build(*client).await,
        Ok(Opening::LanternAddress(stream)) => session.lantern_address(stream).await,
        Ok(Opening::LanternBuild(stream, init)) => session.lantern_build(stream, init).await,
        Ok(Opening::Nothing) => tracing::debug!("client left after the greeting"),
        Err(error) => {
            let reason = match &error {
                CodecError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => Closed::Timeout,
                CodecError::Io(error) if error.kind() != std::io::ErrorKind::InvalidData => Closed::Broken,
                _ => Closed::Protocol,
            };
            shared.activity.closed(reason, format_args!("{error}"));
        }
    }
}

/// The session of one connection.
pub(crate) struct Session<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) peer: SocketAddr,
    /// The address at which the client reached the router.
    pub(crate) here: String,
    pub(crate) id: u64,
}

impl Session<'_> {
    /// Runs from the Hello to the end of the connection.
    async fn build(&self, mut client: Client) {
        let access = &self.shared.config.listening.access;
        let hello = &mut client.hello;
        let admitted = access.admit("router", self.peer, &hello.token, client.certificate.as_deref());
        let admitted = admitted.and_then(|admitted| self.shared.activity.refuses("router").map_or(Ok(admitted), Err));
        let admitted =
            admitted.and_then(|admitted| admitted.limits.check_rows(hello.rows_to_index()).map(|()| admitted));
        let known = admitted.as_ref().map_or_else(|_| service::Client::unnamed(self.peer), Clone::clone);
        let subject = Subject::new(self.id, self.peer, &known, hello);
        if hello.build_id != subject.build {
            // Pass the build's id on to the builder. Encoding the Hello again loses no unknown field: a client that
            // sends no id is older than all later fields.
            hello.build_id.clone_from(&subject.build);
            client.frame.clear();
            ClientMessage::Hello(hello.clone()).encode(&mut client.frame);
        }
        let mut queued = self.shared.activity.queue(subject);
        if let Err(refuse) = admitted {
            queued.log_and_refuse(&refuse);
            return send_last(client, &BuilderMessage::Refuse(*refuse)).await;
        }
        self.shared.door.pending.settle(self.id);
        tracing::Span::current().record("label", printable(&client.hello.label));
        let config = &self.shared.config;
        let demand = Demand::new(known, (config.need_of)(&client.hello), config.machine_for);
        tracing::info!(client = %demand.client, memory = demand.memory, again = !client.ticket.is_empty(), "build asked for");
        self.shared.sent.report_return(&client.ticket);
        let patience = self.shared.config.listening.idle_timeout;
        for attempt in 1..=ATTEMPTS {
            let demand = Demand { again: attempt > 1, ..demand.clone() };
            let lease = tokio::select! {
                lease = wait(&mut client, &self.shared.pool, demand, &queued, patience) => lease,
                () = self.shared.drain.cancelled() => Err(NoBuilder::Shutdown),
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(why) => return refuse(client, queued, &why).await,
            };
            let redirects = self.shared.config.mode == Mode::Redirect && supports_redirect(&client);
            let relayed = match redirects {
                true => self.redirect(client, queued, lease).await,
                false => relayed::relay(self.shared, client, queued, lease).await,
            };
            match relayed {
                Relayed::Ended => return,
                Relayed::Refused(client, queued, why) => return refuse(*client, queued, &why).await,
                Relayed::Lost(again, same, why) => {
                    (client, queued) = (*again, same);
                    tracing::warn!(attempt, why, "builder lost before it took the build");
                    let wait = Wait { position: 0, reason: format!("{why}; looking for another builder") };
                    if send(&mut client, &BuilderMessage::Wait(wait), patience).await.is_err() {
                        return;
                    }
                }
            }
        }
        let why = ErrorReport::new(SqlState::CANNOT_CONNECT_NOW, lost_builders())
            .hint("The router's log says what became of each.")
            .refuse(10_000);
        refuse(client, queued, &NoBuilder::Refused(why)).await;
    }

    /// Redirects the client, and reserves the builder until the build ends.
    async fn redirect(&self, client: Client, queued: Queued, lease: Lease) -> Relayed {
        // Read the numbers before the redirect: the build might be over by the time of a later request.
        let before = match health::builds_if_ready(&lease.facts().place).await {
            Ok(before) => before,
            Err(error) => {
                lease.condemn(&error.to_string());
                let why = format!("builder {} was lost: {error}", lease.facts().name);
                return Relayed::Lost(Box::new(client), queued, why);
            }
        };
        tracing::info!(builder = lease.facts().name, "client is sent to its builder");
        let message = redirect(&lease, &self.shared.config.builder_name, &self.here);
        let running = lease.begin(queued, Arc::new(Stages::new()));
        let Facts { name, place, .. } = lease.facts();
        running.set_elsewhere(&format!("{name} ({}:{})", place.host(), place.port));
        // Register the ticket before the redirect, since the client may return at once.
        let away = self.shared.sent.register(&lease.ticket);
        self.shared.door.tasks.spawn(async move {
            let name = lease.facts().name.clone();
            let followed = tokio::select! {
                followed = lease.follow(before, TICKET_LIFETIME) => followed,
                () = away.returned() => Followed::NeverCame,
            };
            tracing::debug!(builder = name, ?followed, "the client's build is over");
            match followed {
                Followed::Ended(Outcome::Succeeded) => running.end(Outcome::Succeeded, None),
                Followed::Ended(outcome) => running.end(outcome, Some("see the builder's log".to_owned())),
                Followed::NeverCame => {
                    running.end(Outcome::Cancelled, Some("client did not use the builder".to_owned()));
                }
                Followed::Lost => running.end(Outcome::Failed, Some(format!("builder {name} was lost"))),
            }
        });
        send_last(client, &message).await;
        Relayed::Ended
    }
}

/// Why the router tries no further builder.
pub(crate) fn lost_builders() -> String {
    format!("{ATTEMPTS} builders were lost before one took the build")
}

/// Reports to the client and the status page why there is no builder.
async fn refuse(client: Client, queued: Queued, why: &NoBuilder) {
    end_wait(queued, why);
    refuse_client(client, why).await;
}

/// Reports to the log and the status page why there is no builder.
pub(crate) fn end_wait(queued: Queued, why: &NoBuilder) {
    match why {
        NoBuilder::Refused(refuse) => {
            tracing::warn!(reason = refuse.report.message, detail = refuse.report.detail, "build refused");
            let reason = match Refusal::of(refuse.report.sqlstate) {
                // The code is also that of a draining daemon, but the router is not draining: it has no builder.
                Refusal::Draining => Refusal::Builders,
                reason => reason,
            };
            queued.refuse(reason, refuse.report.message.clone());
        }
        NoBuilder::Builder(refuse) => queued.log_and_refuse(refuse),
        NoBuilder::Shutdown => queued.refuse(Refusal::Draining, why.to_string()),
        why => {
            tracing::info!(%why, "client gets no builder");
            queued.end(Outcome::Cancelled, why.to_string());
        }
    }
}
