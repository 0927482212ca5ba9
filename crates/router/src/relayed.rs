//! A build that the router relays between client and builder.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protocol::{BuilderMessage, ErrorReport, Frame, Refuse, SqlState, kind};
use service::{Outcome, Queued, Running};
use tokio::time::sleep;

use crate::admission::NoBuilder;
use crate::boundary::Boundary;
use crate::handover::{Admission, BuilderConnection, admit, ask};
use crate::opening::Client;
use crate::pool::Lease;
use crate::relay::{End, Side, linger, lost, pass, report};
use crate::router::Shared;
use crate::stages::Stages;

/// Reasons of the end of a build, for Lantern's clients as well.
pub(crate) const CLIENT_LEFT: &str = "client left";
pub(crate) const BUILDER_FAILED: &str = "failed, see the builder's log";
pub(crate) const CONNECTION_BROKE: &str = "its connection broke";

/// The result of a relayed build.
pub(crate) enum Relayed {
    /// The build has ended, in whatever way, and the client has been informed.
    Ended,
    /// The client disconnected, or the build was cancelled or refused, before a builder accepted the build.
    Refused(Box<Client>, Queued, NoBuilder),
    /// The builder was lost, or takes no builds any more, before it accepted the build: the caller may try another one.
    Lost(Box<Client>, Queued, String),
}

/// Relays a build between the client and the builder of the lease.
pub(crate) async fn relay(shared: &Arc<Shared>, mut client: Client, queued: Queued, lease: Lease) -> Relayed {
    let builder_tls = shared.config.builder_tls.as_deref();
    let admission = match ask(&lease, &client.frame, builder_tls).await {
        Ok(mut builder) => match tokio::select! {
            admission = admit(&mut client, &mut builder, shared.config.listening.idle_timeout) => admission,
            () = queued.cancelled() => Err(NoBuilder::Operator),
            () = shared.drain.cancelled() => Err(NoBuilder::Shutdown),
        } {
            Ok(Admission::Decided(frame)) => Ok((builder, frame)),
            Ok(Admission::BuilderLost(why)) => Err(why),
            Err(why) => return Relayed::Refused(Box::new(client), queued, why),
        },
        Err(error) => Err(error.to_string()),
    };
    match admission {
        Ok((_, frame)) if frame.kind == kind::REFUSE => {
            let refuse = match BuilderMessage::from_frame(&frame) {
                Ok(Some(BuilderMessage::Refuse(refuse))) => Box::new(refuse),
                _ => unreadable(&lease.facts().name),
            };
            if refuse.report.sqlstate == SqlState::CANNOT_CONNECT_NOW {
                // The builder is drained or shutting down: another one can take the build.
                lease.condemn(&refuse.report.message);
                let why = format!("builder {} refuses the build: {}", lease.facts().name, refuse.report.message);
                return Relayed::Lost(Box::new(client), queued, why);
            }
            Relayed::Refused(Box::new(client), queued, NoBuilder::Builder(refuse))
        }
        Ok((builder, decision)) => {
            build(shared, client, queued, lease, builder, &decision).await;
            Relayed::Ended
        }
        Err(why) => {
            let why = format!("builder {} was lost: {}", lease.facts().name, lease.failed(why).await);
            Relayed::Lost(Box::new(client), queued, why)
        }
    }
}

fn unreadable(builder: &str) -> Box<Refuse> {
    let message = format!("builder {builder} refuses the build in a way that the router does not understand");
    ErrorReport::new(SqlState::PROTOCOL_VIOLATION, message)
        .hint("Use a router and builders of the same release.")
        .refuse(0)
}

/// Relays from the builder's decision, an Accept or an Error, to the end of the build.
async fn build(
    shared: &Arc<Shared>,
    client: Client,
    queued: Queued,
    lease: Lease,
    builder: BuilderConnection,
    decision: &Frame,
) {
    tracing::info!(builder = lease.facts().name, "build relayed");
    let (is_build, asks_advice) = (client.hello.is_build(), client.hello.ask.is_some());
    let stages = Arc::new(Stages::new());
    let running = lease.begin(queued, stages.clone());
    let mut unsent = BytesMut::new();
    decision.encode(&mut unsent);
    let (read, rest) = builder.reader.into_parts();
    unsent.extend_from_slice(&rest);
    let mut builder = Side { read, write: builder.write, pending: unsent };
    let (read, unsent) = client.reader.into_parts();
    let mut client = Side { read, write: client.writer.into_inner(), pending: unsent };
    let mut boundary = Boundary::new(stages);
    let (patience, metrics) = (shared.config.listening.idle_timeout, shared.activity.metrics());
    let tell = |boundary: &mut Boundary, bytes: usize| {
        metrics.sent_bytes.inc_by(bytes as u64);
        let news = boundary.take_news();
        running.add_rows(news.rows);
        running.add_pages(news.pages);
        // A check or advice builds no graph.
        if let Some(done) = news.done.filter(|_| is_build) {
            running.set_graph(&done);
        }
    };
    let forth = |bytes: usize| metrics.received_bytes.inc_by(bytes as u64);
    let end = tokio::select! {
        end = pass(&mut client, &mut builder, &mut boundary, patience, tell, forth) => Ok(end),
        stop = Stop::of(shared, &running) => Err(stop),
    };
    let said = |why: &str| Some(why.to_owned());
    let (outcome, why) = match end {
        Ok(End::Said(kind::DONE)) => (Outcome::Succeeded, None),
        Ok(End::Said(_)) if boundary.is_cancelled() => (Outcome::Cancelled, said(CLIENT_LEFT)),
        Ok(End::Said(_)) if boundary.is_shutdown() => (Outcome::Cancelled, said("the builder was told to stop")),
        Ok(End::Said(_)) if asks_advice && boundary.has_no_advice() => (Outcome::Refused, said("no advice")),
        Ok(End::Said(_)) => (Outcome::Failed, said(BUILDER_FAILED)),
        Ok(End::Left) => (Outcome::Cancelled, said(CLIENT_LEFT)),
        Ok(End::Unread) => (Outcome::Cancelled, Some(format!("client read nothing for {} s", patience.as_secs_f64()))),
        Ok(End::Lost) => {
            let why = lease.loss().await.unwrap_or_else(|| CONNECTION_BROKE.to_owned());
            (Outcome::Failed, Some(why))
        }
        Err(stop) => stop.outcome(),
    };
    let last_word = match end {
        Ok(End::Lost) | Err(Stop::Shutdown) => Some(lost(&lease.facts().name, why.as_deref().unwrap_or_default())),
        Err(Stop::Overdue) => Some(overdue_report(shared.config.max_build_time.unwrap_or_default())),
        Err(Stop::Operator) => Some(ErrorReport::new(SqlState::QUERY_CANCELED, NoBuilder::Operator.to_string())),
        Ok(_) => None,
    };
    // Close the connection so that the builder stops the build, and return the lease without waiting for the client to read the rest.
    drop((builder, lease));
    running.end(outcome, why);
    match (end, last_word) {
        (_, Some(word)) => report(&mut client, &boundary, word).await,
        (Ok(End::Said(_)), None) => {
            tokio::select! {
                () = linger(&mut client, patience) => {}
                () = shared.stop.cancelled() => {}
            }
        }
        _ => {}
    }
}

/// Why the router ends a build.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
    Shutdown,
    Overdue,
    Operator,
}

impl Stop {
    /// Waits until the router must end the build, and returns the reason.
    pub(crate) async fn of(shared: &Shared, running: &Running) -> Self {
        let overdue = async {
            match shared.config.max_build_time {
                Some(limit) => sleep(limit).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = shared.stop.cancelled() => Self::Shutdown,
            () = overdue => Self::Overdue,
            () = running.cancelled() => Self::Operator,
        }
    }

    /// The outcome of the build, and the reason in words.
    pub(crate) fn outcome(self) -> (Outcome, Option<String>) {
        let (outcome, why) = match self {
            Self::Shutdown => (Outcome::Cancelled, "the router is shutting down"),
            Self::Overdue => (Outcome::Failed, "the build took too long"),
            Self::Operator => (Outcome::Cancelled, "the router's operator"),
        };
        (outcome, Some(why.to_owned()))
    }
}

fn overdue_report(limit: Duration) -> ErrorReport {
    let message = format!("build took longer than {} s", limit.as_secs_f64());
    ErrorReport::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).hint("The router's limit is --max-build-time.")
}
