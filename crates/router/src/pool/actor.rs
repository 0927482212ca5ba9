use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::Wait;
use service::report::BuilderReport;
use service::{Activity, TicketKeys};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Lease, Message};
use crate::health;
use crate::scheduler::{Action, BuilderId, Refusal, RequestId, Scheduler};
use crate::spawner::{Builder, Order, Outlook, SpawnError, Spawner, Surroundings};

/// The lifetime of a ticket: the time in which a redirected client must begin its build.
pub(crate) const TICKET_LIFETIME: Duration = Duration::from_secs(60);
/// Interval of reports to waiting clients about a builder's start.
const NEWS: Duration = Duration::from_millis(500);
/// The time limit for stopping all builders when the router ends.
const CLOSE: Duration = Duration::from_secs(10);
/// The time limit for leaving builders to other routers when the router ends.
const LEAVE: Duration = Duration::from_secs(5);

pub(super) struct Client {
    /// The name of the client that requests the build.
    client: service::Client,
    pub(super) waiting: watch::Sender<Wait>,
    answer: oneshot::Sender<Result<Lease, Refusal>>,
}

/// A builder that the scheduler counts.
pub(super) struct Known {
    since: Instant,
    /// Reports about its start.
    pub(super) news: watch::Receiver<String>,
    /// `None` until it has started.
    pub(super) builder: Option<Arc<dyn Builder>>,
    lost: watch::Sender<Option<String>>,
    /// Whether the router has begun to stop it, so that its end is no loss.
    is_stopped: bool,
}

pub(super) struct Actor {
    pub(super) scheduler: Scheduler,
    pub(super) start_timeout: Duration,
    pub(super) spawner: Arc<dyn Spawner>,
    pub(super) key: Option<Arc<TicketKeys>>,
    pub(super) activity: Arc<Activity>,
    pub(super) clients: HashMap<RequestId, Client>,
    pub(super) builders: HashMap<BuilderId, Known>,
    pub(super) messages: mpsc::UnboundedSender<Message>,
    pub(super) publish: watch::Sender<Vec<BuilderReport>>,
}

impl Actor {
    /// Takes over a builder of an earlier router, which may have a build.
    fn adopt(&mut self, builder: Arc<dyn Builder>) {
        let facts = builder.facts();
        tracing::info!(builder = facts.name, "builder of an earlier router taken over");
        let id = self.scheduler.adopt(facts.memory, facts.outdated);
        self.know(id, watch::channel(String::new()).1);
        self.watch(id, builder.clone());
        self.await_finish(id, health::LOST_BUSY);
        // Another router may have asked for it before it was known here.
        let now = self.spawner.surroundings().borrow().clone();
        self.look_around(&now);
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>, drain: CancellationToken) {
        let mut surroundings = self.spawner.surroundings();
        let before = surroundings.borrow_and_update().clone();
        self.look_around(&before);
        let mut draining = false;
        loop {
            for action in self.scheduler.act(Instant::now().into_std()) {
                self.perform(action);
            }
            self.tell();
            let news = (!self.clients.is_empty()).then(|| Instant::now() + NEWS);
            let deadline = self.scheduler.next_deadline().map(Instant::from_std).into_iter().chain(news).min();
            let wake = async {
                match deadline {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(Message::Close { done }) => {
                        self.close(&mut inbox).await;
                        let _ = done.send(());
                        return;
                    }
                    Some(message) => self.handle(message),
                    None => return,
                },
                Ok(()) = surroundings.changed() => {
                    let now = surroundings.borrow_and_update().clone();
                    self.look_around(&now);
                }
                () = drain.cancelled(), if !draining => {
                    draining = true;
                    self.scheduler.drain();
                }
                () = wake => {}
            }
        }
    }

    fn look_around(&mut self, now: &Surroundings) {
        self.scheduler.others(now.others);
        let is_wanted =
            |known: &Known| known.builder.as_ref().is_some_and(|it| now.wanted.contains(&it.facts().ticket_name));
        let wanted: Vec<_> = self.builders.iter().filter(|(_, known)| is_wanted(known)).map(|(&id, _)| id).collect();
        self.scheduler.wanted(&wanted);
    }

    fn handle(&mut self, message: Message) {
        let now = Instant::now();
        match message {
            Message::Ask { demand, waiting, answer } => {
                let client = demand.client.clone();
                match self.scheduler.ask(demand) {
                    Ok(request) => _ = self.clients.insert(request, Client { client, waiting, answer }),
                    Err(refusal) => _ = answer.send(Err(refusal)),
                }
            }
            Message::Left => {
                let gone = self.clients.extract_if(|_, client| client.answer.is_closed());
                gone.for_each(|(request, _)| self.scheduler.leave(request));
            }
            Message::Adopted { builder } => self.adopt(builder),
            Message::Started { id, builder } => {
                let took = self.builders.get(&id).map_or(Duration::ZERO, |known| now - known.since);
                self.activity.metrics().builder_start.observe(took.as_secs_f64());
                tracing::info!(builder = builder.facts().name, seconds = took.as_secs_f64(), "builder started");
                self.scheduler.started(id, builder.facts().memory, now.into_std());
                builder.show_building(false);
                self.watch(id, builder);
            }
            Message::Failed { id, error } => {
                // With a shared quota the same attempt is made again and again until another router's builder ends.
                let repeated = error.outlook == Outlook::Shared && self.scheduler.last_failure() == Some(&error);
                if error.outlook == Outlook::Full || repeated {
                    tracing::debug!(%error, "builder not started");
                } else {
                    tracing::warn!(%error, "builder not started");
                }
                self.builders.remove(&id);
                self.scheduler.failed(id, error, now.into_std());
            }
            Message::GivenBack { id } => {
                self.scheduler.given_back(id);
                self.await_finish(id, health::LOST);
            }
            Message::Finished { id } => {
                self.scheduler.finished(id, now.into_std());
                if let Some(builder) = self.builders.get(&id).and_then(|known| known.builder.as_ref()) {
                    builder.show_building(false);
                }
            }
            Message::Lost { id, why } => {
                if let Some(known) = self.builders.get(&id) {
                    if known.lost.send_replace(Some(why.clone())).is_none() && !known.is_stopped {
                        let name = known.builder.as_ref().map_or("", |builder| &builder.facts().name);
                        tracing::warn!(builder = name, why, "builder lost");
                    }
                    self.scheduler.lost(id);
                }
            }
            Message::Stopped { id } => {
                self.builders.remove(&id);
                self.scheduler.stopped(id);
            }
            // `run` handles this message.
            Message::Close { .. } => {}
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Start { id, memory } => {
                let (tell, news) = watch::channel(String::new());
                self.know(id, news);
                let (spawner, messages) = (self.spawner.clone(), self.messages.clone());
                let order = Order { memory, limit: self.start_timeout, tell };
                tokio::spawn(async move {
                    let message = match spawner.start(order).await {
                        Ok(builder) => Message::Started { id, builder },
                        Err(error) => Message::Failed { id, error },
                    };
                    let _ = messages.send(message);
                });
            }
            Action::Stop { id } => {
                let Some(known) = self.builders.get_mut(&id) else { return };
                known.is_stopped = true;
                let Some(builder) = known.builder.clone() else { return };
                tracing::info!(builder = builder.facts().name, "builder is stopped");
                let messages = self.messages.clone();
                tokio::spawn(async move {
                    builder.stop().await;
                    let _ = messages.send(Message::Stopped { id });
                });
            }
            Action::LetGo { id } => {
                let Some(builder) = self.builders.get(&id).and_then(|known| known.builder.clone()) else { return };
                tracing::info!(builder = builder.facts().name, "builder is left to other routers");
                let messages = self.messages.clone();
                tokio::spawn(async move {
                    builder.let_go().await;
                    let _ = messages.send(Message::Stopped { id });
                });
            }
            Action::Grant { request, id } => self.grant(request, id),
            Action::Refuse { request, refusal } => {
                if let Some(client) = self.clients.remove(&request) {
                    // The last report to the client says more than the timeout.
                    let refusal = match refusal {
                        Refusal::Late(after, None) => {
                            let last = client.waiting.borrow().reason.clone();
                            Refusal::Late(after, Some(SpawnError::passing(last)))
                        }
                        refusal => refusal,
                    };
                    let _ = client.answer.send(Err(refusal));
                }
            }
        }
    }

    fn grant(&mut self, request: RequestId, id: BuilderId) {
        let Some(known) = self.builders.get(&id) else { return };
        let Some(builder) = known.builder.clone() else { return };
        builder.show_building(true);
        let ticket = match (&self.key, self.clients.get(&request)) {
            (Some(key), Some(Client { client, .. })) => {
                let expiry = builder.facts().place.clock.now() + TICKET_LIFETIME.as_secs();
                key.issue(&builder.facts().ticket_name, &self.scheduler.limited(id, client), expiry)
            }
            _ => Ok(String::new()),
        };
        let answer = match ticket {
            Ok(ticket) => {
                let (lost, messages) = (known.lost.subscribe(), self.messages.clone());
                Ok(Lease { id, builder, ticket, lost, messages })
            }
            Err(error) => Err(Refusal::NoStart(SpawnError::passing(error.to_string()), Duration::ZERO)),
        };
        if answer.is_err() {
            let _ = self.messages.send(Message::GivenBack { id });
        }
        // If the client is gone, sending fails and drops the lease, which returns it to the pool.
        if let Some(client) = self.clients.remove(&request) {
            let _ = client.answer.send(answer);
        }
    }

    fn know(&mut self, id: BuilderId, news: watch::Receiver<String>) {
        let lost = watch::channel(None).0;
        self.builders.insert(id, Known { since: Instant::now(), news, builder: None, lost, is_stopped: false });
    }

    /// Reports the loss of a builder, while the scheduler counts it.
    fn watch(&mut self, id: BuilderId, builder: Arc<dyn Builder>) {
        let Some(known) = self.builders.get_mut(&id) else { return };
        known.builder = Some(builder.clone());
        let mut forgotten = known.lost.subscribe();
        let messages = self.messages.clone();
        tokio::spawn(async move {
            tokio::select! {
                why = builder.gone() => {
                    let _ = messages.send(Message::Lost { id, why });
                }
                () = async { while forgotten.changed().await.is_ok() {} } => {}
                () = messages.closed() => {}
            }
        });
    }

    /// Waits until the builder itself reports that its build has ended and its memory is free. It is lost if it does not answer for as long
    /// as `patience`.
    fn await_finish(&self, id: BuilderId, patience: Duration) {
        let Some(builder) = self.builders.get(&id).and_then(|known| known.builder.clone()) else { return };
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let is_free = health::wait_until(&builder.facts().place, patience, |builds| builds.active == 0);
            let message = match is_free.await {
                Ok(_) => Message::Finished { id },
                Err(error) => Message::Lost { id, why: format!("its status port does not answer: {error}") },
            };
            let _ = messages.send(message);
        });
    }

    async fn close(&mut self, inbox: &mut mpsc::UnboundedReceiver<Message>) {
        self.clients.drain().for_each(|(request, _)| self.scheduler.leave(request));
        if self.spawner.outlives_router() {
            if timeout(LEAVE, self.leave_all(inbox)).await.is_err() {
                tracing::warn!("ended before all builders were left to other routers");
            }
            return;
        }
        let stops: Vec<_> = self.builders.values().filter_map(|known| known.builder.clone()).collect();
        let all = async {
            let mut tasks = tokio::task::JoinSet::new();
            for builder in stops {
                tasks.spawn(async move { builder.stop().await });
            }
            tasks.join_all().await;
        };
        if timeout(CLOSE, all).await.is_err() {
            tracing::warn!("ended without waiting for all builders");
        }
    }

    /// Waits for builders whose build is ending, and leaves all idle ones to other routers. Redirected builds may go on for hours.
    async fn leave_all(&mut self, inbox: &mut mpsc::UnboundedReceiver<Message>) {
        self.scheduler.drain();
        loop {
            for action in self.scheduler.act(Instant::now().into_std()) {
                self.perform(action);
            }
            if !self.scheduler.is_any_leaving() {
                return;
            }
            match inbox.recv().await {
                Some(message) => self.handle(message),
                None => return,
            }
        }
    }
}
