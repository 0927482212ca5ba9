//! Serves Lantern's clients. They cannot present a ticket, read nothing while they send rows, and understand no message once they
//! receive the file.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protocol::Hello;
use protocol::v1::{Answers, Ending, Init, ServerAddress, error_frame, relayed};
use service::report::Subject;
use service::{Client, Closed, Outcome, Queued, Refusal, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::timeout;

use crate::admission;
use crate::handover::greeted;
use crate::health;
use crate::pool::{Lease, TICKET_LIFETIME};
use crate::relay::{Broken, LAST_WORD, copy, send_last};
use crate::relayed::Stop;
use crate::router::Shared;
use crate::scheduler::Demand;
use crate::session::{ATTEMPTS, Session};
use crate::stages::Stages;

/// How long a relayed client may wait for a builder. Clients give up after 10 seconds without an answer.
const PATIENCE: Duration = Duration::from_secs(7);
/// The time limit for a client to read the rest of its file.
const READING: Duration = Duration::from_secs(600);

/// Why there is no builder for a client.
enum NoBuilder {
    /// The message that the client gets.
    Refused(Refusal, String),
    /// The router's operator has cancelled the build.
    Operator,
    Left,
}

/// How a relayed build ended.
enum End {
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
            () = self.shared.drain.cancelled() => Err(NoBuilder::Refused(Refusal::Draining, "router is shutting down".to_owned())),
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(NoBuilder::Refused(_, text)) => return tell(stream, &error_frame(&text)).await,
            Err(_) => return tracing::info!("Lantern client left"),
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
                let text = "no builder is ready yet; one may be starting, try again";
                Err(NoBuilder::Refused(Refusal::Queue, text.to_owned()))
            }),
            () = self.shared.drain.cancelled() => Err(NoBuilder::Refused(Refusal::Draining, "router is shutting down".to_owned())),
            () = queued.cancelled() => Err(NoBuilder::Operator),
        };
        match found {
            Ok((lease, builder)) => self.lantern_relay(stream, queued, lease, builder).await,
            Err(NoBuilder::Left) => tracing::info!("Lantern client left"),
            Err(NoBuilder::Refused(reason, text)) => {
                tracing::warn!(reason = text, "build refused");
                queued.refuse(reason, text.clone());
                tell(stream, &error_frame(&text)).await;
            }
            Err(NoBuilder::Operator) => {
                let text = admission::NoBuilder::Operator.to_string();
                queued.end(Outcome::Cancelled, text.clone());
                tell(stream, &error_frame(&text)).await;
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
        Err(NoBuilder::Refused(Refusal::Builders, format!("{ATTEMPTS} builders were lost before one took the build")))
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
                    Err(NoBuilder::Refused(Refusal::Builders, "no builder is available, see the router's log".to_owned()))
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
                Err(Broken::Writing | Broken::Unread) => End::Left,
                _ => answers.ending().map_or(End::Lost("its connection broke"), End::Said),
            },
            end = copy(&mut from_client, &mut to_builder, &mut there, patience, |bytes| {
                metrics.received_bytes.inc_by(bytes.len() as u64);
            }) => match end {
                Err(Broken::Writing | Broken::Unread) => End::Lost("it takes no more rows"),
                _ => End::Left,
            },
            stop = Stop::of(self.shared, &running) => End::Stopped(stop),
        };
        let (outcome, why) = match end {
            End::Said(Ending::File) => (Outcome::Succeeded, None),
            End::Said(Ending::Error) => (Outcome::Failed, Some("failed, see the builder's log".to_owned())),
            End::Left => (Outcome::Cancelled, Some("client left".to_owned())),
            End::Lost(why) => (Outcome::Failed, Some(lease.loss().await.unwrap_or_else(|| why.to_owned()))),
            End::Stopped(stop) => stop.outcome(),
        };
        // Close the connection so that the builder stops the build before the lease returns to the pool.
        drop((from_builder, to_builder));
        running.end(outcome, why);
        drop(lease);
        // In the other cases the connection is reset without a message, which the client could take for a part of the file.
        if let End::Said(ending) = end {
            let limit = if ending == Ending::File { READING } else { LAST_WORD };
            send_last(from_client, to_client, &[], limit).await;
        }
    }
}

/// Sends the last message.
async fn tell(stream: Box<dyn Transport>, bytes: &[u8]) {
    let (read, write) = split(stream);
    send_last(read, write, bytes, LAST_WORD).await;
}
