//! Carries out the scheduler's actions: starts and stops builders, informs waiting clients, and reports events back.

mod actor;
mod lease;
mod news;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::Wait;
use service::report::BuilderReport;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use actor::Actor;
pub(crate) use actor::TICKET_LIFETIME;
pub(crate) use lease::{Followed, Lease};

use crate::scheduler::{BuilderId, Demand, Refusal, Rules, Scheduler};
use crate::spawner::{Builder, SpawnError, Spawner};
use service::{Activity, TicketKeys};

/// Interval of searches for builders whose router is gone or has released them.
const LOOK_FOR_LEFTOVERS: Duration = Duration::from_secs(15);
/// The shortest interval between these searches, while another router releases builders to this one.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Messages to the pool.
enum Message {
    Ask {
        demand: Demand,
        waiting: watch::Sender<Wait>,
        answer: oneshot::Sender<Result<Lease, Refusal>>,
    },
    /// A waiting client has disconnected: the receiver of its answer is closed.
    Left,
    Adopted {
        builder: Arc<dyn Builder>,
    },
    Started {
        id: BuilderId,
        builder: Arc<dyn Builder>,
    },
    Failed {
        id: BuilderId,
        error: SpawnError,
    },
    GivenBack {
        id: BuilderId,
    },
    Finished {
        id: BuilderId,
    },
    Lost {
        id: BuilderId,
        why: String,
    },
    Stopped {
        id: BuilderId,
    },
    Close {
        done: oneshot::Sender<()>,
    },
}

/// A handle to the pool.
#[derive(Clone)]
pub(crate) struct Pool {
    messages: mpsc::UnboundedSender<Message>,
    builders: watch::Receiver<Vec<BuilderReport>>,
}

impl Pool {
    /// Starts the pool's task. Until `drain` it takes over builders whose router is gone, at the start and later.
    pub(crate) fn start(
        rules: Rules,
        spawner: Arc<dyn Spawner>,
        key: Option<Arc<TicketKeys>>,
        activity: Arc<Activity>,
        drain: CancellationToken,
    ) -> Self {
        let (messages, inbox) = mpsc::unbounded_channel();
        let (publish, builders) = watch::channel(Vec::new());
        if spawner.outlives_router() {
            tokio::spawn(drain.clone().run_until_cancelled_owned(take_over(spawner.clone(), messages.clone())));
        }
        let actor = Actor {
            start_timeout: rules.start_timeout,
            scheduler: Scheduler::new(rules),
            spawner,
            key,
            activity,
            clients: HashMap::new(),
            builders: HashMap::new(),
            messages: messages.clone(),
            publish,
        };
        tokio::spawn(actor.run(inbox, drain));
        Self { messages, builders }
    }

    /// Queues a request for a builder.
    pub(crate) fn ask(&self, demand: Demand) -> Request {
        let (waiting, updates) = watch::channel(Wait::default());
        let (answer, answered) = oneshot::channel();
        let _ = self.messages.send(Message::Ask { demand, waiting, answer });
        Request { updates, answered, messages: self.messages.clone() }
    }

    /// A receiver of the reports on the builders, by age.
    pub(crate) fn builders(&self) -> watch::Receiver<Vec<BuilderReport>> {
        self.builders.clone()
    }

    /// Stops all builders that must not outlive the router, or leaves them to other routers.
    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.messages.send(Message::Close { done }).is_ok() {
            let _ = closed.await;
        }
    }
}

/// Searches for builders whose router is gone or has released them to this one.
async fn take_over(spawner: Arc<dyn Spawner>, messages: mpsc::UnboundedSender<Message>) {
    let mut surroundings = spawner.surroundings();
    while !messages.is_closed() {
        let pause = match spawner.leftovers().await {
            Ok(builders) => {
                for builder in builders {
                    let _ = messages.send(Message::Adopted { builder });
                }
                LOOK_AGAIN
            }
            Err(error) => {
                tracing::warn!(%error, "cannot look for builders of routers that are gone");
                LOOK_FOR_LEFTOVERS
            }
        };
        sleep(pause).await;
        let left = async {
            if surroundings.wait_for(|now| now.left).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = timeout(LOOK_FOR_LEFTOVERS, left) => {}
            () = messages.closed() => {}
        }
    }
}

/// A place in the queue, left on drop.
pub(crate) struct Request {
    updates: watch::Receiver<Wait>,
    answered: oneshot::Receiver<Result<Lease, Refusal>>,
    messages: mpsc::UnboundedSender<Message>,
}

impl Request {
    /// The report for the waiting client.
    pub(crate) fn waiting(&self) -> Wait {
        self.updates.borrow().clone()
    }

    /// The builder, or why there is none. `None`: the router is shutting down. Cancel-safe.
    pub(crate) async fn answer(&mut self) -> Option<Result<Lease, Refusal>> {
        (&mut self.answered).await.ok()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.answered.close();
        let _ = self.messages.send(Message::Left);
    }
}
