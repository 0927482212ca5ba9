//! Serves Lantern's clients. They cannot present a ticket, read nothing while they send rows, and understand no message once they
//! receive the file.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protocol::v1::{Answers, Ending, Init, ServerAddress, error_frame, relayed};
use protocol::{ErrorReport, Hello, SqlState};
use service::report::Subject;
use service::{Client, Closed, Outcome, Queued, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::timeout;

use crate::admission::NoBuilder;
use crate::handover::greeted;
use crate::health;
use crate::pool::{Lease, TICKET_LIFETIME};
use crate::relay::{Broken, LAST_WORD, copy, send_last};
use crate::relayed::{BUILDER_FAILED, CLIENT_LEFT, CONNECTION_BROKE, Stop};
use crate::router::Shared;
use crate::scheduler::Demand;
use crate::session::{ATTEMPTS, Session, end_wait, lost_builders};
use crate::stages::Stages;

/// How long a relayed client may wait for a builder. Clients give up after 10 seconds without an answer.
const PATIENCE: Duration = Duration::from_secs(7);
/// The time limit for a client to read the rest of its file.
const READING: Duration = Duration::from_secs(600);

/// How a relayed build ended.
enum LanternEnd {
    /// The builder sent the file or an error.
    Said(Ending),
    /// The builder was lost.
    Lost(&'static str),
    /// The client disconnected.
    Left,
    /// The router has ended it.
    Stopped(Stop),
}

impl Session<'_> {
    /// Sends the client the address of a builder.
    pub(crate) async fn lantern_address(&self, mut stream: Box<dyn Transport>) {
        let client = match self.lantern_client(&*stream) {
            Ok(client) => client,
            Err(text) => return self.lantern_refuse(stream, &text).await,
        };
        self.shared.door.pending.settle(self.id);
        let lease = tokio::select! {
            lease = self.lantern_lease(&mut stream, &client, false) => lease,
            () = self.shared.drain.cancelled() => Err(NoBuilder::Shutdown),
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(why) => return turn_away(stream, &why).await,
        };
        let before = match health::builds_if_ready(&lease.facts().place).await {
            Ok(before) => before,
            Err(error) => {
                lease.condemn(&error.to_string());
                let text = format!("builder {} was lost: {error}; try again", lease.facts().name);
                return tell(stream, &error_frame(&text)).await;
            }
        };
        let host = lease.facts().place.host.clone().unwrap_or_else(|| self.here.clone());
        let secure = self.shared.config.listening.access.tls.is_some();
        let bytes = match (ServerAddress { secure, host, port: lease.facts().place.port }).to_bytes() {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, builder = lease.facts().name, "Lantern client gets no builder");
                return tell(stream, &error_frame(&error.to_string())).await;
            }
        };
        tracing::info!(builder = lease.facts().name, "Lantern client is sent to its builder");
        // Not in `activity`: the request says nothing of the build, which its builder's status shows.
        self.shared.door.tasks.spawn(async move { _ = lease.follow(before, TICKET_LIFETIME).await });
        tell(stream, &bytes).await;
    }

    /// Relays a build between the client and a builder.
    pub(crate) async fn lantern_build(&self, mut stream: Box<dyn Transport>, init: Init) {
        let client = match self.lantern_client(&*stream) {
            Ok(client) => client,
            Err(text) => return self.lantern_refuse(stream, &text).await,
        };
        let subject = match self.lantern_subject(&client, &init) {
            Ok(subject) => subject,
            Err(text) => return self.lantern_refuse(stream, &text).await,
        };
        if let Err(error) = stream.reset_when_closed() {
            return tracing::warn!(%error, "closed: a Lantern client needs a connection that can be reset");
        }
        let queued = self.shared.activity.queue(subject);
        self.shared.door.pending.settle(self.id);
        let found = tokio::select! {
            found = timeout(PATIENCE, self.lantern_builder(&mut stream, &client, &init)) => found.unwrap_or_else(|_| {
                Err(refused(SqlState::TOO_MANY_CONNECTIONS, "no builder is ready yet; one may be starting, try again"))
            }),
            () = self.shared.drain.cancelled() => Err(NoBuilder::Shutdown),
            () = queued.cancelled() => Err(NoBuilder::Operator),
        };
        match found {
            Ok((lease, builder)) => self.lantern_relay(stream, queued, lease, builder).await,
            Err(why) => {
                end_wait(queued, &why);
                turn_away(stream, &why).await;
            }
        }
    }

    /// Authenticates the client.
    fn lantern_client(&self, stream: &dyn Transport) -> Result<Client, String> {
        let Shared { config, activity, .. } = &**self.shared;
        if let Some(refuse) = activity.refuses("router") {
            return Err(refuse.report.message);
        }
        config.listening.access.admit_lantern("router", self.peer, stream.peer_name().as_deref())
    }

    async fn lantern_refuse(&self, stream: Box<dyn Transport>, text: &str) {
        self.shared.activity.closed(Closed::Protocol, format_args!("{text}"));
        tell(stream, &error_frame(text)).await;
    }

    fn lantern_subject(&self, client: &Client, init: &Init) -> Result<Subject, String> {
        // Cosine and inner product have the same number; which one is meant is a setting of builders.
        let order = init.order(false).map_err(|error| error.to_string())?;
        let (m, ef_construction) = (order.m, order.ef_construction);
        let hello = Hello { m, ef_construction, ..Hello::new(order.value_type, order.metric, order.dims) };
        Ok(Subject::new(self.id, self.peer, client, &hello))
    }

    /// Finds a builder and sends it the client's order.
    async fn lantern_builder(
        &self,
        stream: &mut Box<dyn Transport>,
        client: &Client,
        init: &Init,
    ) -> Result<(Lease, Box<dyn Transport>), NoBuilder> {
        for attempt in 1..=ATTEMPTS {
            let lease = self.lantern_lease(stream, client, attempt > 1).await?;
            let asked = async {
                // Lantern's protocol has no code by which to recognise that the builder is drained.
                health::builds_if_ready(&lease.facts().place).await?;
                let mut builder = greeted(&lease, self.shared.config.builder_tls.as_deref()).await?;
                let ticket = relayed(&lease.ticket).ok_or_else(|| std::io::Error::other("the ticket is too long"))?;
                // Leave out the first four bytes of the order, which are the choice of the protocol.
                builder.write_all(&[&ticket, &init.to_bytes()[4..]].concat()).await?;
                builder.flush().await?;
                std::io::Result::Ok(builder)
            };
            match asked.await {
                Ok(builder) => return Ok((lease, builder)),
                Err(error) => {
                    tracing::warn!(attempt, %error, builder = lease.facts().name, "builder lost before it took the build");
                    lease.condemn(&error.to_string());
                }
            }
        }
        Err(refused(SqlState::CANNOT_CONNECT_NOW, &lost_builders()))
    }

    async fn lantern_lease(
        &self,
        stream: &mut Box<dyn Transport>,
        client: &Client,
        again: bool,
    ) -> Result<Lease, NoBuilder> {
        // The order has no number of rows, so request the smallest builder.
        let demand = Demand { again, ..Demand::new(client.clone(), 0, self.shared.config.machine_for) };
        let mut request = self.shared.pool.ask(demand);
        let mut byte = [0];
        tokio::select! {
            answer = request.answer() => match answer {
                Some(Ok(lease)) => Ok(lease),
                other => {
                    let refusal = other.and_then(Result::err);
                    tracing::warn!(?refusal, "Lantern client gets no builder");
                    Err(refused(SqlState::CANNOT_CONNECT_NOW, "no builder is available, see the router's log"))
                }
            },
            // The client sends nothing before the answer: any byte, or the end of the stream, means that it has left.
            _ = stream.read(&mut byte) => Err(NoBuilder::Left),
        }
    }

    /// Relays bytes until one side ends or the router ends the build. Without the builder's last word, resets the client's connection:
    /// the client would take the end of the stream for the end of the file.
    async fn lantern_relay(
        &self,
        client: Box<dyn Transport>,
        queued: Queued,
        lease: Lease,
        builder: Box<dyn Transport>,
    ) {
        tracing::info!(builder = lease.facts().name, "build of a Lantern client relayed");
        let running = lease.begin(queued, Arc::new(Stages::new()));
        let mut answers = Answers::default();
        let (mut from_client, mut to_client) = split(client);
        let (mut from_builder, mut to_builder) = split(builder);
        let (mut there, mut back) = (BytesMut::new(), BytesMut::new());
        let (patience, metrics) = (self.shared.config.listening.idle_timeout, self.shared.activity.metrics());
        let end = tokio::select! {
            // The builder's end of the stream takes precedence if both sides end at the same time.
            biased;
            end = copy(&mut from_builder, &mut to_client, &mut back, patience, |bytes| {
                answers.pass(bytes);
                metrics.sent_bytes.inc_by(bytes.len() as u64);
            }) => match end {
                Err(Broken::Writing | Broken::Unread) => LanternEnd::Left,
                _ => answers.ending().map_or(LanternEnd::Lost(CONNECTION_BROKE), LanternEnd::Said),
            },
            end = copy(&mut from_client, &mut to_builder, &mut there, patience, |bytes| {
                metrics.received_bytes.inc_by(bytes.len() as u64);
            }) => match end {
                Err(Broken::Writing | Broken::Unread) => LanternEnd::Lost("it takes no more rows"),
                _ => LanternEnd::Left,
            },
            stop = Stop::of(self.shared, &running) => LanternEnd::Stopped(stop),
        };
        let (outcome, why) = match end {
            LanternEnd::Said(Ending::File) => (Outcome::Succeeded, None),
            LanternEnd::Said(Ending::Error) => (Outcome::Failed, Some(BUILDER_FAILED.to_owned())),
            LanternEnd::Left => (Outcome::Cancelled, Some(CLIENT_LEFT.to_owned())),
            LanternEnd::Lost(why) => (Outcome::Failed, Some(lease.loss().await.unwrap_or_else(|| why.to_owned()))),
            LanternEnd::Stopped(stop) => stop.outcome(),
        };
        // Close the connection so that the builder stops the build before the lease returns to the pool.
        drop((from_builder, to_builder));
        running.end(outcome, why);
        drop(lease);
        // In the other cases the connection is reset without a message, which the client could take for a part of the file.
        if let LanternEnd::Said(ending) = end {
            let limit = if ending == Ending::File { READING } else { LAST_WORD };
            send_last(from_client, to_client, &[], limit).await;
        }
    }
}

fn refused(sqlstate: SqlState, text: &str) -> NoBuilder {
    NoBuilder::Refused(ErrorReport::new(sqlstate, text).refuse(0))
}

/// Sends the client the reason why it gets no builder.
async fn turn_away(stream: Box<dyn Transport>, why: &NoBuilder) {
    match why {
        NoBuilder::Left => tracing::info!("Lantern client left"),
        why => tell(stream, &error_frame(&why.to_string())).await,
    }
}

/// Sends the last message.
async fn tell(stream: Box<dyn Transport>, bytes: &[u8]) {
    let (read, write) = split(stream);
    send_last(read, write, bytes, LAST_WORD).await;
}
