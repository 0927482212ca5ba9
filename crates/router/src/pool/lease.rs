use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::Message;
use crate::health::{self, Builds};
use crate::scheduler::BuilderId;
use crate::spawner::{Builder, Place};

/// A builder for one build; it returns to the pool when this is dropped.
pub(crate) struct Lease {
    id: BuilderId,
    builder: Arc<dyn Builder>,
    /// The ticket for the builder; empty if it requires none.
    pub(crate) ticket: String,
    lost: watch::Receiver<Option<String>>,
    messages: mpsc::UnboundedSender<Message>,
}

impl Lease {
    pub(super) fn new(
        id: BuilderId,
        builder: Arc<dyn Builder>,
        ticket: String,
        lost: watch::Receiver<Option<String>>,
        messages: mpsc::UnboundedSender<Message>,
    ) -> Self {
        Self { id, builder, ticket, lost, messages }
    }

    /// The builder's name.
    pub(crate) fn name(&self) -> &str {
        self.builder.name()
    }

    /// Memory in bytes that the builder has.
    pub(crate) fn memory(&self) -> u64 {
        self.builder.memory()
    }

    /// Where the builder is.
    pub(crate) fn place(&self) -> &Place {
        self.builder.place()
    }

    /// Why the builder is gone, if that becomes known soon.
    pub(crate) async fn loss(&mut self, patience: Duration) -> Option<String> {
        timeout(patience, self.lost.wait_for(Option::is_some)).await.ok()?.ok()?.clone()
    }

    /// The builder has failed and is to be stopped.
    pub(crate) fn condemn(&self, why: &str) {
        let _ = self.messages.send(Message::Lost { id: self.id, why: why.to_owned() });
    }

    /// Reserves the builder for a redirected client until its build is over, or until the client has not arrived in time.
    pub(crate) async fn follow(self, before: Builds, patience: Duration) -> Followed {
        let until = Instant::now() + patience;
        let mut lost = self.lost.clone();
        let settled = health::wait_until(self.place(), |now| {
            let came = now.active > 0 || now.ended > before.ended;
            (came || Instant::now() >= until) && now.active == 0
        });
        let after = tokio::select! {
            after = settled => after.ok(),
            _ = lost.wait_for(Option::is_some) => None,
        };
        match after {
            None => Followed::Lost,
            Some(after) if after.succeeded > before.succeeded => Followed::Built,
            Some(after) if after.ended > before.ended => Followed::Failed,
            Some(_) => Followed::NeverCame,
        }
    }
}

/// What became of a redirected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    Built,
    Failed,
    NeverCame,
    Lost,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::GivenBack { id: self.id });
    }
}
