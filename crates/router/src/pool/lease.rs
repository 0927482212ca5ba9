use std::sync::Arc;
use std::time::Duration;

use service::{Outcome, Queued, Running};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::Message;
use crate::health::{self, Builds};
use crate::scheduler::BuilderId;
use crate::spawner::{Builder, Facts};
use crate::stages::Stages;

/// How long to wait for the reason why a builder was lost.
const REASON: Duration = Duration::from_secs(3);

/// A builder for one build. It returns to the pool on drop.
pub(crate) struct Lease {
    pub(super) id: BuilderId,
    pub(super) builder: Arc<dyn Builder>,
    /// The ticket for the builder; empty if it requires none.
    pub(crate) ticket: String,
    pub(super) lost: watch::Receiver<Option<String>>,
    pub(super) messages: mpsc::UnboundedSender<Message>,
}

impl Lease {
    /// What is known of the builder.
    pub(crate) fn facts(&self) -> &Facts {
        self.builder.facts()
    }

    /// Begins the build on this builder.
    pub(crate) fn begin(&self, queued: Queued, stages: Arc<Stages>) -> Running {
        let Facts { name, memory, .. } = self.facts();
        let running = queued.begin(*memory, move || stages.stage());
        running.set_builder(name);
        running
    }

    /// Why the builder is gone, if the pool learns it soon.
    pub(crate) async fn loss(&self) -> Option<String> {
        timeout(REASON, self.lost.clone().wait_for(Option::is_some)).await.ok()?.ok()?.clone()
    }

    /// Reports that the builder has failed and must be stopped.
    pub(crate) fn condemn(&self, why: &str) {
        let _ = self.messages.send(Message::Lost { id: self.id, why: why.to_owned() });
    }

    /// Like [`condemn`](Self::condemn) after an `error` of the connection. Returns why the builder is gone, if the pool learns it soon, else
    /// `error`.
    pub(crate) async fn failed(&self, error: String) -> String {
        // Before `condemn`, whose reason the pool would return.
        let why = self.loss().await.unwrap_or(error);
        self.condemn(&why);
        why
    }

    /// Reserves the builder for a redirected client until its build ends, or until `patience` has passed without a build.
    pub(crate) async fn follow(self, before: Builds, patience: Duration) -> Followed {
        let until = Instant::now() + patience;
        let mut lost = self.lost.clone();
        let settled = health::wait_until(&self.facts().place, health::LOST_BUSY, |now| {
            let came = now.active > 0 || now.ended_since(&before).is_some();
            now.restarted_since(&before) || (came || Instant::now() >= until) && now.active == 0
        });
        let after = tokio::select! {
            after = settled => after.ok(),
            _ = lost.wait_for(Option::is_some) => None,
        };
        match after.filter(|after| !after.restarted_since(&before)) {
            None => Followed::Lost,
            Some(after) => after.ended_since(&before).map_or(Followed::NeverCame, Followed::Ended),
        }
    }
}

/// How the build of a redirected client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    Ended(Outcome),
    NeverCame,
    Lost,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::GivenBack { id: self.id });
    }
}
