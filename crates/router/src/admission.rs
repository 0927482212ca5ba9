use std::time::Duration;

use bytes::BytesMut;
use protocol::{BuilderMessage, ClientMessage, ErrorReport, HEARTBEAT_INTERVAL, ProtocolError, Refuse, SqlState};
use service::{CodecError, Queued, refuse_memory, refuse_waiting};
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::opening::Client;
use crate::pool::{Lease, Pool};
use crate::relay::{self, LAST_WORD};
use crate::scheduler::{Demand, Refusal};

/// Why a client gets no builder.
#[derive(Debug, Error)]
pub(crate) enum NoBuilder {
    #[error("cancelled by the client")]
    Cancelled,
    #[error("build cancelled by the router's operator")]
    Operator,
    #[error("client closed the connection")]
    Left,
    #[error("router is shutting down")]
    Shutdown,
    #[error(transparent)]
    Client(#[from] CodecError),
    #[error("client sent nothing for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The router refuses the build.
    #[error("{}", .0.report.message)]
    Refused(Box<Refuse>),
    /// The builder refuses the build.
    #[error("{}", .0.report.message)]
    Builder(Box<Refuse>),
}

/// Waits for a builder, reports queue position and reason to the client, and lets the client cancel.
pub(crate) async fn wait(
    client: &mut Client,
    pool: &Pool,
    demand: Demand,
    queued: &Queued,
    patience: Duration,
) -> Result<Lease, NoBuilder> {
    let memory = demand.known_memory();
    let mut heard = Instant::now();
    let mut request = pool.ask(demand);
    let mut tick = interval(HEARTBEAT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Skip the first, immediate tick: an idle builder is granted before the second, and the client needs no report.
    tick.reset();
    loop {
        tokio::select! {
            // If the router itself was suspended, what has arrived meanwhile comes before time limits.
            biased;
            answer = request.answer() => return match answer {
                Some(Ok(lease)) => Ok(lease),
                Some(Err(refusal)) => Err(NoBuilder::Refused(refuse(&refusal))),
                None => Err(NoBuilder::Shutdown),
            },
            () = queued.cancelled() => return Err(NoBuilder::Operator),
            _ = tick.tick() => {
                let waiting = request.waiting();
                queued.place(waiting.position, memory);
                send(client, &BuilderMessage::Wait(waiting), patience).await?;
            }
            frame = client.reader.next() => {
                check_frame(frame)?;
                heard = Instant::now();
            }
            () = sleep_until(heard + patience) => return Err(NoBuilder::Silent(patience)),
        }
    }
}

/// Sends a message; fails if the client does not read it within `patience`.
pub(crate) async fn send(client: &mut Client, message: &BuilderMessage, patience: Duration) -> Result<(), NoBuilder> {
    match timeout(patience, client.writer.send(message)).await {
        Ok(sent) => Ok(_ = sent.map_err(CodecError::from)?),
        Err(_) => Err(NoBuilder::Left),
    }
}

/// Checks a frame that a waiting client sends.
pub(crate) fn check_frame(frame: Result<Option<protocol::Frame>, CodecError>) -> Result<(), NoBuilder> {
    let frame = frame?.ok_or(NoBuilder::Left)?;
    match ClientMessage::from_frame(&frame).map_err(CodecError::from)? {
        Some(ClientMessage::Heartbeat) | None => Ok(()),
        Some(ClientMessage::Cancel) => Err(NoBuilder::Cancelled),
        Some(other) => {
            let error = ProtocolError::Unexpected { message: other.name(), state: "waiting for a builder" };
            Err(NoBuilder::Client(error.into()))
        }
    }
}

/// Sends the client the reason why it gets no builder, and ends the session.
pub(crate) async fn refuse_client(client: Client, why: &NoBuilder) {
    let error = |sqlstate| BuilderMessage::Error(ErrorReport::new(sqlstate, why.to_string()));
    let message = match why {
        NoBuilder::Left | NoBuilder::Client(CodecError::Io(_)) => return,
        NoBuilder::Cancelled | NoBuilder::Operator => error(SqlState::QUERY_CANCELED),
        NoBuilder::Shutdown => error(SqlState::ADMIN_SHUTDOWN),
        NoBuilder::Client(CodecError::Protocol(problem)) => error(problem.sqlstate()),
        NoBuilder::Silent(_) => error(SqlState::CONNECTION_FAILURE),
        NoBuilder::Refused(refuse) | NoBuilder::Builder(refuse) => BuilderMessage::Refuse((**refuse).clone()),
    };
    send_last(client, &message).await;
}

/// Sends a last message and gives the client time to read it.
pub(crate) async fn send_last(client: Client, message: &BuilderMessage) {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    relay::send_last(client.reader.into_parts().0, client.writer.into_inner(), &bytes, LAST_WORD).await;
}

fn refuse(refusal: &Refusal) -> Box<Refuse> {
    match refusal {
        Refusal::Waiting(most) => refuse_waiting(*most),
        Refusal::Beyond { needed, limit } => refuse_memory("build", *needed, *limit),
        Refusal::NoStart(error, after) => {
            ErrorReport::new(SqlState::CANNOT_CONNECT_NOW, "router cannot start a builder")
                .detail(&error.text)
                .hint(&error.hint)
                .refuse(u32::try_from(after.as_millis()).unwrap_or(u32::MAX))
        }
        Refusal::Late(after, error) => {
            let (detail, hint) = error.as_ref().map_or(("", ""), |error| (&error.text, &error.hint));
            let message = format!("no builder was ready within {} s", after.as_secs());
            ErrorReport::new(SqlState::CANNOT_CONNECT_NOW, message).detail(detail).hint(hint).refuse(30_000)
        }
    }
}
