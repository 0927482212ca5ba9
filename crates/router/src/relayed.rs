use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protocol::{Frame, kind};
use service::{Outcome, Queued};

use crate::admission::NoBuilder;
use crate::boundary::Boundary;
use crate::handover::{Admission, Asked, admit, ask};
use crate::opening::Client;
use crate::pool::Lease;
use crate::relay::{End, Side, pass, report};
use crate::router::Shared;
use crate::stages::Stages;

/// How long it may take until the reason of a loss is known.
const REASON: Duration = Duration::from_secs(3);

/// What became of a relayed build.
pub(crate) enum Relayed {
    /// It ended, well or not, and the client knows.
    Ended,
    /// The client is gone or cancelled before the builder took the build.
    Refused(Box<Client>, Queued, NoBuilder),
    /// The builder was lost before it took the build: another may take it.
    Lost(Box<Client>, Queued, String),
}

/// Has the builder build, with this router between the two.
pub(crate) async fn relay(shared: &Arc<Shared>, mut client: Client, queued: Queued, mut lease: Lease) -> Relayed {
    let asked = ask(&lease, &client.frame, shared.config.builder_tls.as_ref()).await;
    let admission = match asked {
        Ok(mut builder) => match admit(&mut client, &mut builder).await {
            Ok(Admission::Decided(frame)) => Ok((builder, frame)),
            Ok(Admission::BuilderLost(why)) => Err(why),
            Err(why) => return Relayed::Refused(Box::new(client), queued, why),
        },
        Err(error) => Err(error.to_string()),
    };
    match admission {
        Ok((builder, decision)) => {
            build(shared, client, queued, lease, builder, &decision).await;
            Relayed::Ended
        }
        Err(why) => {
            lease.condemn(&why);
            let known = lease.loss(REASON).await.unwrap_or(why);
            let why = format!("builder {} was lost: {known}", lease.name());
            Relayed::Lost(Box::new(client), queued, why)
        }
    }
}

/// From the frame by which the builder takes the build, or does not.
async fn build(
    shared: &Arc<Shared>,
    client: Client,
    queued: Queued,
    mut lease: Lease,
    builder: Asked,
    decision: &Frame,
) {
    let accepted = decision.kind == kind::ACCEPT;
    tracing::info!(builder = lease.name(), accepted, "build relayed");
    let stages = Arc::new(Stages::new());
    let seen = stages.clone();
    let running = queued.begin(lease.memory(), move || seen.stage());

    let mut pending = BytesMut::new();
    decision.encode(&mut pending);
    let (read, rest) = builder.reader.into_parts();
    pending.extend_from_slice(&rest);
    let mut builder = Side { read, write: builder.write, pending };
    let (read, pending) = client.reader.into_parts();
    let mut client = Side { read, write: client.writer.into_inner(), pending };
    let mut boundary = Boundary::new(stages);
    let end = tokio::select! {
        end = pass(&mut client, &mut builder, &mut boundary) => Some(end),
        () = shared.stop.cancelled() => None,
    };
    let (outcome, why) = match end {
        Some(End::Said(kind::DONE)) => (Outcome::Succeeded, None),
        Some(End::Said(_)) if boundary.is_cancelled() => (Outcome::Cancelled, Some("client left".to_owned())),
        Some(End::Said(_)) => (Outcome::Failed, Some("the builder said why".to_owned())),
        Some(End::Left) => (Outcome::Cancelled, Some("client left".to_owned())),
        Some(End::Lost) => {
            let why = lease.loss(REASON).await.unwrap_or_else(|| "its connection broke".to_owned());
            (Outcome::Failed, Some(why))
        }
        None => (Outcome::Cancelled, Some("the router is shutting down".to_owned())),
    };
    if matches!(end, Some(End::Lost) | None) {
        report(&mut client, &boundary, lease.name(), why.as_deref().unwrap_or_default()).await;
    }
    tracing::info!(builder = lease.name(), outcome = outcome.name(), why = why.as_deref().unwrap_or(""), "build ended");
    // The builder stops what nobody wants any more before it is given to others.
    drop(builder);
    running.end(outcome, why);
}
